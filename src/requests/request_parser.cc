#include "src/requests/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "spillway/error.h"
#include "src/requests/line_fault.h"
#include "src/requests/line_json.h"
#include "src/requests/line_text.h"
#include "src/requests/sampling_keys.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::string_view kUrl = "/v1/completions";
constexpr std::size_t kMaxCustomIdBytes = 64 << 10;

bool IsPromptKey(std::string_view key) { return key == "prompt" || key == "token_ids"; }
bool IsBatchKey(std::string_view key) { return key == "method" || key == "url" || key == "body"; }

LineFault Invalid(std::string message) { return {"invalid_value", std::move(message)}; }

template <typename Known>
MaybeFault CheckKeys(const json& object, const char* where, Known known) {
  for (const auto& [name, value] : object.items()) {
    if (!known(name))
      return LineFault{"unknown_key", fmt::format("unknown key \"{}\"{}", Printable(name), where)};
  }
  return std::nullopt;
}

MaybeFault CheckExactly(const json& line, const char* key, std::string_view wanted) {
  const auto value = line.find(key);
  if (value == line.end()) return LineFault{"missing_key", fmt::format("has no key \"{}\"", key)};
  if (!value->is_string()) return Invalid(fmt::format("\"{}\" must be a string", key));
  const auto& text = value->get_ref<const std::string&>();
  if (text == wanted) return std::nullopt;
  return LineFault{"unsupported_value",
                   fmt::format("\"{}\" must be \"{}\", not \"{}\"", key, wanted, Printable(text))};
}

// The object that holds the prompt: the line itself, or its "body" in the Batch form.
std::variant<const json*, LineFault> FindBody(const json& line) {
  const bool is_batch = std::ranges::any_of(std::array{"method", "url", "body"},
                                            [&](const char* key) { return line.contains(key); });
  if (!is_batch) {
    const auto known = [](std::string_view key) {
      return key == "custom_id" || IsPromptKey(key) || IsSamplingKey(key);
    };
    if (MaybeFault fault = CheckKeys(line, "", known)) return *fault;
    return &line;
  }
  const auto known = [](std::string_view key) { return key == "custom_id" || IsBatchKey(key); };
  if (MaybeFault fault = CheckKeys(line, " beside \"body\"", known)) return *fault;
  if (MaybeFault fault = CheckExactly(line, "method", "POST")) return *fault;
  if (MaybeFault fault = CheckExactly(line, "url", kUrl)) return *fault;
  const auto body = line.find("body");
  if (body == line.end()) return LineFault{"missing_key", "has no key \"body\""};
  if (!body->is_object()) return Invalid("\"body\" must be an object");
  const auto known_inside = [](std::string_view key) {
    return IsPromptKey(key) || IsSamplingKey(key);
  };
  if (MaybeFault fault = CheckKeys(*body, " in \"body\"", known_inside)) return *fault;
  return &*body;
}

// Missing, null and "" leave `custom_id` empty: the line number takes its place. Control characters
// are kept; JSON escapes them on the way out.
MaybeFault ReadCustomId(const json& line, std::string& custom_id) {
  const auto value = line.find("custom_id");
  if (value == line.end() || value->is_null()) return std::nullopt;
  if (!value->is_string()) return Invalid("\"custom_id\" must be a string");
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > kMaxCustomIdBytes) {
    return Invalid(fmt::format("\"custom_id\" has {} bytes; at most {} are taken", text.size(),
                               kMaxCustomIdBytes));
  }
  custom_id = text;
  return std::nullopt;
}

MaybeFault ReadTokenIds(const json& list, const char* key, std::vector<TokenId>& prompt,
                        int64_t vocab_rows) {
  prompt.reserve(list.size());
  for (const json& item : list) {
    if (item.is_array() || item.is_string()) {
      return Invalid(fmt::format("\"{}\" holds several prompts; give each its own line", key));
    }
    if (!item.is_number_integer())
      return Invalid(fmt::format("\"{}\" must hold integers only", key));
    // An unsigned number over INT64_MAX comes out negative here.
    const auto id = item.get<int64_t>();
    if (id < 0 || id >= vocab_rows) {
      return LineFault{"token_out_of_range",
                       fmt::format("token id {} at index {}; the model's ids are 0 to {}",
                                   item.dump(), prompt.size(), vocab_rows - 1)};
    }
    prompt.push_back(static_cast<TokenId>(id));
  }
  if (prompt.empty()) return LineFault{"empty_prompt", fmt::format("\"{}\" is empty", key)};
  return std::nullopt;
}

MaybeFault EncodePrompt(std::string_view text, const Tokenizer& tokenizer,
                        const ReaderOptions& options, std::vector<TokenId>& prompt) {
  if (!tokenizer.encodes_text()) {
    return LineFault{"no_tokenizer", "the model has no tokenizer; give \"token_ids\" or --tokenizer"};
  }
  if (!text.empty()) prompt = tokenizer.Encode(text, options.special_text);
  if (!prompt.empty()) return std::nullopt;
  if (options.start_token < 0) {
    return LineFault{"empty_prompt", "the prompt is empty and this model has no start token"};
  }
  prompt.push_back(options.start_token);
  return std::nullopt;
}

MaybeFault ReadPrompt(const json& body, const Tokenizer& tokenizer, const ReaderOptions& options,
                      std::vector<TokenId>& prompt) {
  const auto text = body.find("prompt");
  const auto ids = body.find("token_ids");
  if (text == body.end() && ids == body.end())
    return LineFault{"missing_key", "has no key \"prompt\""};
  if (text != body.end() && ids != body.end())
    return Invalid("has both \"prompt\" and \"token_ids\"; give one");
  if (ids != body.end()) {
    if (!ids->is_array()) return Invalid("\"token_ids\" must be a list of integers");
    return ReadTokenIds(*ids, "token_ids", prompt, options.vocab_rows);
  }
  if (text->is_array()) return ReadTokenIds(*text, "prompt", prompt, options.vocab_rows);
  if (!text->is_string()) return Invalid("\"prompt\" must be a string or a list of token ids");
  return EncodePrompt(text->get_ref<const std::string&>(), tokenizer, options, prompt);
}

MaybeFault CheckLength(const Request& request, int64_t max_positions) {
  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t max_tokens = request.sampling.max_tokens;
  if (num_prompt <= max_positions && max_tokens <= max_positions - num_prompt) return std::nullopt;
  return LineFault{
      "context_length_exceeded",
      fmt::format(
          "prompt of {} tokens + max_tokens {} is over the model's {} positions; shorten the "
          "prompt or lower max_tokens",
          num_prompt, max_tokens, max_positions)};
}

// `request.custom_id` is set as soon as it is known, so that a fault found later can carry it.
MaybeFault ReadJsonRequest(std::string_view text, const Tokenizer& tokenizer,
                           const ReaderOptions& options, Request& request) {
  std::variant<json, LineFault> parsed = ParseLineJson(text);
  if (auto* fault = std::get_if<LineFault>(&parsed)) return std::move(*fault);
  const json& line = std::get<json>(parsed);
  if (!line.is_object()) return Invalid("must be a JSON object");
  if (MaybeFault fault = ReadCustomId(line, request.custom_id)) return fault;
  std::variant<const json*, LineFault> found = FindBody(line);
  if (auto* fault = std::get_if<LineFault>(&found)) return std::move(*fault);
  const json& body = *std::get<const json*>(found);
  if (MaybeFault fault = ReadSamplingKeys(body, request.sampling)) return fault;
  return ReadPrompt(body, tokenizer, options, request.prompt);
}

}  // namespace

InputForm FormOf(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return extension == ".txt" ? InputForm::kPlainLines : InputForm::kJsonLines;
}

RequestParser::RequestParser(InputForm form, const Tokenizer& tokenizer, ReaderOptions options)
    : form_(form), tokenizer_(tokenizer), options_(std::move(options)) {
  SPILLWAY_CHECK(options_.max_positions > 0 && options_.vocab_rows > 0);
}

RequestOrError RequestParser::Parse(const Line& line) const {
  Request request{
      .line = line.number, .custom_id = {}, .prompt = {}, .sampling = options_.defaults};
  MaybeFault fault;
  if (line.too_long) {
    fault = LineFault{"line_too_long", fmt::format("has {} bytes; at most {} are taken",
                                                   line.num_bytes, options_.max_line_bytes)};
  } else if ((fault = CheckText(line.text))) {
  } else if (form_ == InputForm::kPlainLines) {
    fault = EncodePrompt(line.text, tokenizer_, options_, request.prompt);
  } else {
    fault = ReadJsonRequest(line.text, tokenizer_, options_, request);
  }
  if (!fault) fault = CheckLength(request, options_.max_positions);
  if (fault) {
    return LineError{line.number, std::move(request.custom_id), std::move(fault->code),
                     fmt::format("line {}: {}", line.number, fault->message)};
  }
  if (request.custom_id.empty()) request.custom_id = std::to_string(line.number);
  return request;
}

}  // namespace spillway
