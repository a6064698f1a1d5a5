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
#include "src/requests/prompt_keys.h"
#include "src/requests/sampling_keys.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::string_view kUrl = "/v1/completions";

bool IsPromptKey(std::string_view key) { return key == "prompt" || key == "token_ids"; }
bool IsBatchKey(std::string_view key) { return key == "method" || key == "url" || key == "body"; }

MaybeFault CheckExactly(const json& line, const char* key, std::string_view wanted) {
  const auto value = line.find(key);
  if (value == line.end()) return LineFault{"missing_key", fmt::format("has no key \"{}\"", key)};
  if (!value->is_string()) return InvalidValue(fmt::format("\"{}\" must be a string", key));
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
  if (!body->is_object()) return InvalidValue("\"body\" must be an object");
  const auto known_inside = [](std::string_view key) {
    return IsPromptKey(key) || IsSamplingKey(key);
  };
  if (MaybeFault fault = CheckKeys(*body, " in \"body\"", known_inside)) return *fault;
  return &*body;
}

TokensOrFault ReadPrompt(const json& body, const Tokenizer& tokenizer,
                         const ReaderOptions& options) {
  const auto text = body.find("prompt");
  const auto ids = body.find("token_ids");
  if (text == body.end() && ids == body.end())
    return LineFault{"missing_key", "has no key \"prompt\""};
  if (text != body.end() && ids != body.end())
    return InvalidValue("has both \"prompt\" and \"token_ids\"; give one");
  if (ids != body.end()) {
    if (!ids->is_array()) return InvalidValue("\"token_ids\" must be a list of integers");
    return ReadTokenIds(*ids, "token_ids", options.vocab_rows);
  }
  if (text->is_array()) return ReadTokenIds(*text, "prompt", options.vocab_rows);
  if (!text->is_string()) return InvalidValue("\"prompt\" must be a string or a list of token ids");
  return EncodePrompt(text->get_ref<const std::string&>(), tokenizer, options);
}

MaybeFault CheckLength(const Request& request, int64_t max_positions) {
  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t max_tokens = request.sampling.max_tokens;
  if (num_prompt <= max_positions && max_tokens <= max_positions - num_prompt) return std::nullopt;
  if (request.scored) {
    return LineFault{"context_length_exceeded",
                     fmt::format("text of {} tokens is over the model's {} positions; shorten it",
                                 num_prompt + max_tokens, max_positions)};
  }
  return LineFault{
      "context_length_exceeded",
      fmt::format(
          "prompt of {} tokens + max_tokens {} is over the model's {} positions; shorten the "
          "prompt or lower max_tokens",
          num_prompt, max_tokens, max_positions)};
}

RequestOrFault MakePrompt(TokensOrFault prompt, Sampling sampling) {
  if (auto* fault = std::get_if<LineFault>(&prompt)) return std::move(*fault);
  Request request;
  request.prompt = std::move(std::get<std::vector<TokenId>>(prompt));
  request.sampling = std::move(sampling);
  return request;
}

RequestOrFault ReadPromptLine(const json& line, const Tokenizer& tokenizer,
                              const ReaderOptions& options) {
  std::variant<const json*, LineFault> found = FindBody(line);
  if (auto* fault = std::get_if<LineFault>(&found)) return std::move(*fault);
  const json& body = *std::get<const json*>(found);
  Sampling sampling = options.defaults;
  if (MaybeFault fault = ReadSamplingKeys(body, sampling)) return std::move(*fault);
  return MakePrompt(ReadPrompt(body, tokenizer, options), std::move(sampling));
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

RequestOrFault RequestParser::ParseText(const Line& line) const {
  if (options_.score) return ReadScoreText(line.text, tokenizer_, options_);
  return MakePrompt(EncodePrompt(line.text, tokenizer_, options_), options_.defaults);
}

RequestOrFault RequestParser::ParseJson(const Line& line, std::string& custom_id) const {
  std::variant<json, LineFault> parsed = ParseLineJson(line.text);
  if (auto* fault = std::get_if<LineFault>(&parsed)) return std::move(*fault);
  const json& object = std::get<json>(parsed);
  if (!object.is_object()) return InvalidValue("must be a JSON object");
  std::variant<std::string, LineFault> id = ReadCustomId(object);
  if (auto* fault = std::get_if<LineFault>(&id)) return std::move(*fault);
  custom_id = std::move(std::get<std::string>(id));
  return options_.score ? ReadScoreLine(object, tokenizer_, options_)
                        : ReadPromptLine(object, tokenizer_, options_);
}

RequestOrFault RequestParser::ParseAny(const Line& line, std::string& custom_id) const {
  if (line.too_long) {
    return LineFault{"line_too_long", fmt::format("has {} bytes; at most {} are taken",
                                                  line.num_bytes, options_.max_line_bytes)};
  }
  if (MaybeFault fault = CheckText(line.text)) return std::move(*fault);
  RequestOrFault request =
      form_ == InputForm::kPlainLines ? ParseText(line) : ParseJson(line, custom_id);
  const auto* read = std::get_if<Request>(&request);
  if (read == nullptr) return request;
  if (MaybeFault fault = CheckLength(*read, options_.max_positions)) return std::move(*fault);
  return request;
}

RequestOrError RequestParser::Parse(const Line& line) const {
  std::string custom_id;
  RequestOrFault parsed = ParseAny(line, custom_id);
  if (auto* fault = std::get_if<LineFault>(&parsed)) {
    return LineError{line.number, std::move(custom_id), std::move(fault->code),
                     fmt::format("line {}: {}", line.number, fault->message)};
  }
  Request& request = std::get<Request>(parsed);
  request.line = line.number;
  request.custom_id = custom_id.empty() ? std::to_string(line.number) : std::move(custom_id);
  return std::move(request);
}

}  // namespace spillway
