#include "src/requests/prompt_keys.h"

#include <fmt/format.h>

#include <utility>

#include "spillway/error.h"
#include "src/requests/whole_number.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxCustomIdBytes = 64 << 10;

}  // namespace

LineFault InvalidValue(std::string message) { return {"invalid_value", std::move(message)}; }

const json* FindSet(const json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::variant<std::string, LineFault> ReadCustomId(const json& line) {
  const auto value = line.find("custom_id");
  if (value == line.end() || value->is_null()) return "";
  if (!value->is_string()) return InvalidValue("\"custom_id\" must be a string");
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() <= kMaxCustomIdBytes) return text;
  return InvalidValue(fmt::format("\"custom_id\" has {} bytes; at most {} are taken", text.size(),
                                  kMaxCustomIdBytes));
}

TokensOrFault ReadTokenIds(const json& list, std::string_view key, int64_t vocab_rows) {
  if (!list.is_array()) return InvalidValue(fmt::format("\"{}\" must be a list of integers", key));
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const json& item : list) {
    if (item.is_array() || item.is_string()) {
      return InvalidValue(fmt::format("\"{}\" holds several prompts; give each its own line", key));
    }
    const std::optional<int64_t> id = WholeNumber(item);
    if (!id && !item.is_number_unsigned())
      return InvalidValue(fmt::format("\"{}\" must hold integers only", key));
    if (!id || *id < 0 || *id >= vocab_rows) {
      return LineFault{"token_out_of_range",
                       fmt::format("token id {} at index {}; the model's ids are 0 to {}",
                                   item.dump(), ids.size(), vocab_rows - 1)};
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  if (ids.empty()) return LineFault{"empty_prompt", fmt::format("\"{}\" is empty", key)};
  return ids;
}

MaybeFault CheckTextLength(std::string_view text, const Tokenizer& tokenizer,
                           const ReaderOptions& options) {
  if (options.cut) return std::nullopt;
  const bool is_told = options.score && options.kv.rolls;  // token by token, as far as one likes
  const int64_t most = is_told ? kMostRowTokens : options.max_positions;
  const int64_t least = tokenizer.LeastTokens(text);
  if (least <= most) return std::nullopt;
  return LineFault{
      "context_length_exceeded",
      fmt::format("{} of at least {} tokens ({} bytes) is over {} {} positions; shorten it",
                  options.score ? "text" : "prompt", least, text.size(),
                  is_told ? "a row's" : "the model's", most)};
}

MaybeFault CheckLength(const Request& request, const ReaderOptions& options) {
  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  std::string why =
      WhyTooLong(options.kv, options.max_positions, {num_prompt, request.sampling.max_tokens});
  if (why.empty()) return std::nullopt;
  if (num_prompt > options.max_positions && !options.score) why += " or give --truncate";
  return LineFault{"context_length_exceeded", std::move(why)};
}

TokensOrFault EncodeText(std::string_view text, const Tokenizer& tokenizer,
                         const ReaderOptions& options) {
  if (!tokenizer.encodes_text()) {
    return LineFault{"no_tokenizer",
                     "the model has no tokenizer; give \"token_ids\" or --tokenizer"};
  }
  std::vector<TokenId> ids;
  if (!text.empty()) ids = tokenizer.Encode(text, options.special_text);
  if (!ids.empty()) return ids;
  if (options.start_token < 0) {
    return LineFault{"empty_prompt", "the prompt is empty and this model has no start token"};
  }
  return std::vector<TokenId>{options.start_token};
}

TokensOrFault EncodePrompt(std::string_view text, const Tokenizer& tokenizer,
                           const ReaderOptions& options) {
  if (MaybeFault fault = CheckTextLength(text, tokenizer, options)) return std::move(*fault);
  return EncodeText(text, tokenizer, options);
}

}  // namespace spillway
