#include "src/requests/score_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "src/requests/prompt_keys.h"
#include "src/requests/score_request.h"
#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kTextKeys = {"text", "token_ids", "context",
                                                       "continuation"};

struct Line {
  const Tokenizer& tokenizer;
  const ReaderOptions& options;
};

// Python's str.isspace, which the reference strips by: \s and the four separators of ASCII.
bool IsStripped(char32_t c) { return IsSpace(c) || (c >= 0x1C && c <= 0x1F); }

std::size_t SizeWithoutSpacesAtEnd(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const CodePoint last = CodePointBefore(text, end);
    if (!IsStripped(last.value)) break;
    end -= last.bytes;
  }
  return end;
}

// All of one form and nothing of another.
MaybeFault CheckForm(const json& line) {
  const auto known = [](std::string_view key) {
    return key == "custom_id" || std::ranges::find(kTextKeys, key) != kTextKeys.end();
  };
  if (MaybeFault fault = CheckKeys(line, "", known)) return fault;
  const bool pair = line.contains("context") || line.contains("continuation");
  const int num_forms = line.contains("text") + line.contains("token_ids") + (pair ? 1 : 0);
  if (num_forms == 0) {
    return LineFault{
        "missing_key",
        "has none of the keys \"text\", \"token_ids\", \"context\" with \"continuation\""};
  }
  if (num_forms > 1) {
    return InvalidValue(
        "give one of \"text\", \"token_ids\", or \"context\" with \"continuation\"");
  }
  for (const char* key : {"context", "continuation"}) {
    if (pair && !line.contains(key))
      return LineFault{"missing_key", fmt::format("has no key \"{}\"", key)};
  }
  for (const auto& [name, value] : line.items()) {
    const bool wants_text = name != "custom_id" && name != "token_ids";
    if (wants_text && !value.is_string())
      return InvalidValue(fmt::format("\"{}\" must be a string", name));
  }
  return std::nullopt;
}

RequestOrFault ScoreTokenIds(const json& list, const Line& line) {
  if (!list.is_array()) return InvalidValue("\"token_ids\" must be a list of integers");
  TokensOrFault ids = ReadTokenIds(list, "token_ids", line.options.vocab_rows);
  if (auto* fault = std::get_if<LineFault>(&ids)) return std::move(*fault);
  return ScoreRequest({std::move(std::get<std::vector<TokenId>>(ids)), 1, 1}, *line.options.score);
}

RequestOrFault ScorePair(const std::string& context, const std::string& continuation,
                         const Line& line) {
  const std::string whole = context + continuation;
  const std::string_view stripped(context.data(), SizeWithoutSpacesAtEnd(context));
  TokensOrFault encoded_whole = EncodePrompt(whole, line.tokenizer, line.options);
  if (auto* fault = std::get_if<LineFault>(&encoded_whole)) return std::move(*fault);
  // Nothing is the start token alone.
  TokensOrFault encoded_context = EncodePrompt(stripped, line.tokenizer, line.options);
  if (auto* fault = std::get_if<LineFault>(&encoded_context)) return std::move(*fault);

  auto& tokens = std::get<std::vector<TokenId>>(encoded_whole);
  const auto& head = std::get<std::vector<TokenId>>(encoded_context);
  // Adds the start token where the tokenizer adds none itself.
  if (stripped.empty() && tokens.front() != head.front())
    tokens.insert(tokens.begin(), head.front());
  if (tokens.size() <= head.size()) {
    return LineFault{
        "empty_continuation",
        fmt::format("context and continuation are {} tokens together, the context alone "
                    "{}: the continuation has none of its own to score",
                    tokens.size(), head.size())};
  }
  const auto first = static_cast<int64_t>(head.size());
  return ScoreRequest({std::move(tokens), first, 0}, *line.options.score);
}

}  // namespace

RequestOrFault ReadScoreLine(const json& line, const Tokenizer& tokenizer,
                             const ReaderOptions& options) {
  if (MaybeFault fault = CheckForm(line)) return std::move(*fault);
  if (const auto ids = line.find("token_ids"); ids != line.end())
    return ScoreTokenIds(*ids, {tokenizer, options});
  if (const auto text = line.find("text"); text != line.end())
    return ReadScoreText(text->get_ref<const std::string&>(), tokenizer, options);
  return ScorePair(line.at("context").get_ref<const std::string&>(),
                   line.at("continuation").get_ref<const std::string&>(), {tokenizer, options});
}

RequestOrFault ReadScoreText(std::string_view text, const Tokenizer& tokenizer,
                             const ReaderOptions& options) {
  TokensOrFault encoded = EncodePrompt(text, tokenizer, options);
  if (auto* fault = std::get_if<LineFault>(&encoded)) return std::move(*fault);
  auto& tokens = std::get<std::vector<TokenId>>(encoded);
  // Nothing precedes the first token where there is no start token.
  const int64_t num_unscored = tokens.front() == options.start_token ? 0 : 1;
  return ScoreRequest({std::move(tokens), 1, num_unscored}, *options.score);
}

}  // namespace spillway
