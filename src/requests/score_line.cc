#include "src/requests/score_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "src/requests/chat_line.h"
#include "src/requests/cut_prompt.h"
#include "src/requests/documented_keys.h"
#include "src/requests/prompt_keys.h"
#include "src/requests/sampling_keys.h"
#include "src/requests/score_request.h"
#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;

// Form of a line: the keys that belong to it and to no other.
struct ScoreForm {
  std::string_view first;
  std::string_view second;  // empty: none
  bool holds_text;          // otherwise token ids, or messages
};
constexpr std::array kForms = {ScoreForm{"text", "", true}, ScoreForm{"token_ids", "", false},
                               ScoreForm{"context", "continuation", true},
                               ScoreForm{"context_token_ids", "continuation_token_ids", false},
                               ScoreForm{"messages", "", false}};
constexpr std::string_view kFormNames =
    "\"text\", \"token_ids\", \"context\" with \"continuation\", \"context_token_ids\" with "
    "\"continuation_token_ids\", or \"messages\"";

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

bool Has(const json& line, std::string_view key) {
  return !key.empty() && FindSet(line, key) != nullptr;
}

constexpr std::array<std::string_view, 7> kNearKeys = {
    "text",    "token_ids", "continuation", "context_token_ids", "continuation_token_ids",
    "context", "custom_id"};

// Keys that say how to generate.
bool IsGenerateKey(std::string_view key, BodyForm form) {
  return IsSamplingKey(key, form) || key == kCutKey;
}

// Keys of other verbs: what would change an answer of theirs changes none here, but may be meant
// to.
MaybeFault CheckOtherVerbs(std::string_view key, const json& value, BodyForm form) {
  if (!IsGenerateKey(key, form)) return CheckDocumentedKey(key, value, form);
  return LineFault{"unsupported_value",
                   fmt::format("\"{}\" is not supported by score, which generates nothing; leave "
                               "it out",
                               key)};
}

MaybeFault CheckScoreKeys(const json& line, bool strict, LineNotes& notes) {
  const bool is_chat = Has(line, "messages");
  const BodyForm form = is_chat ? BodyForm::kChat : BodyForm::kCompletion;
  const auto own = [&](std::string_view key) {
    return key == "custom_id" || IsScoreKey(key) || (is_chat && IsChatPairKey(key));
  };
  const auto known = [&](std::string_view key) {
    return own(key) || IsGenerateKey(key, form) || IsDocumentedKey(key, form) || IsChatKey(key);
  };
  for (const auto& [key, value] : line.items()) {
    if (value.is_null() || own(key)) continue;
    if (is_chat && IsChatKey(key))
      return LineFault{"unsupported_value",
                       fmt::format("\"{}\" is not supported by score; leave it out", key)};
    if (MaybeFault fault = CheckOtherVerbs(key, value, form)) return fault;
  }
  return CheckKeys(line, {"", kNearKeys, {}, strict}, notes, known);
}

LineFault NoForm(const json& line) {
  std::string advice;
  if (FindSet(line, "prompt") != nullptr)
    advice = "; did you mean \"text\" or \"context\" by \"prompt\"?";
  return {"missing_key", fmt::format("has none of the keys {}{}", kFormNames, advice)};
}

// The form whose keys are there, all of them and no other's.
std::variant<ScoreForm, LineFault> FindForm(const json& line) {
  const ScoreForm* found = nullptr;
  for (const ScoreForm& form : kForms) {
    if (!Has(line, form.first) && !Has(line, form.second)) continue;
    if (found != nullptr) return InvalidValue(fmt::format("give one of {}", kFormNames));
    found = &form;
  }
  if (found == nullptr) return NoForm(line);
  for (const std::string_view key : {found->first, found->second}) {
    if (key.empty()) continue;
    if (!Has(line, key)) return LineFault{"missing_key", fmt::format("has no key \"{}\"", key)};
    if (found->holds_text && !line.at(key).is_string())
      return InvalidValue(fmt::format("\"{}\" must be a string", key));
  }
  return *found;
}

LineFault TooLong(const char* what, std::size_t num_tokens, int64_t max_positions) {
  return {"context_length_exceeded",
          fmt::format("{} of {} tokens is over the model's {} positions; shorten it", what,
                      num_tokens, max_positions)};
}

// A text that a rolling cache takes: as long as one likes behind its first pass. A context that
// would all be in that is cut to the model's positions.
RequestOrFault ScoreRolling(KnownTokens text, const ReaderOptions& options) {
  const int64_t max_positions = options.max_positions;
  const auto num_tokens = static_cast<int64_t>(text.tokens.size());
  const bool cuts = text.first > max_positions && text.first < num_tokens && !options.score->tokens;
  if (cuts) text = WithCutContext(std::move(text), max_positions - 1 + num_tokens - text.first);
  Request request = ScoreRequest(std::move(text), *options.score);
  const auto num_first = static_cast<int64_t>(request.prompt.size());
  if (num_first > max_positions) {
    return LineFault{"context_length_exceeded",
                     fmt::format("first pass of {} tokens is over the model's {} positions; give "
                                 "--prefill fewer",
                                 num_first, max_positions)};
  }
  if (MaybeFault fault = CheckLength(request, options)) return std::move(*fault);
  return request;
}

// All of a text. Requires: not empty.
RequestOrFault ScoreWhole(KnownTokens text, const ReaderOptions& options) {
  if (options.kv.rolls) return ScoreRolling(std::move(text), options);
  if (std::ssize(text.tokens) > options.max_positions)
    return TooLong("text", text.tokens.size(), options.max_positions);
  return ScoreRequest(std::move(text), *options.score);
}

// Scores what follows the first `first` tokens. Requires: 0 < first < all of them.
RequestOrFault ScoreFrom(std::vector<TokenId> tokens, std::size_t first,
                         const ReaderOptions& options) {
  const std::size_t num_scored = tokens.size() - first;
  if (options.kv.rolls)
    return ScoreRolling({std::move(tokens), static_cast<int64_t>(first)}, options);
  if (static_cast<int64_t>(num_scored) > options.max_positions)
    return TooLong("continuation", num_scored, options.max_positions);
  KnownTokens text = {std::move(tokens), static_cast<int64_t>(first)};
  return ScoreRequest(WithCutContext(std::move(text), options.max_positions), *options.score);
}

// Scores what follows the context. Requires: neither is empty.
RequestOrFault ScoreAfter(std::vector<TokenId> context, const std::vector<TokenId>& continuation,
                          const ReaderOptions& options) {
  const std::size_t first = context.size();
  context.insert(context.end(), continuation.begin(), continuation.end());
  return ScoreFrom(std::move(context), first, options);
}

RequestOrFault ScoreIdPair(const json& line, const ReaderOptions& options) {
  constexpr auto kContext = "context_token_ids", kContinuation = "continuation_token_ids";
  TokensOrFault context = ReadTokenIds(line.at(kContext), kContext, options.vocab_rows);
  if (auto* fault = std::get_if<LineFault>(&context)) return std::move(*fault);
  const json& list = line.at(kContinuation);
  if (list.is_array() && list.empty())
    return LineFault{"empty_continuation", "\"continuation_token_ids\" has no token to score"};
  TokensOrFault continuation = ReadTokenIds(list, kContinuation, options.vocab_rows);
  if (auto* fault = std::get_if<LineFault>(&continuation)) return std::move(*fault);
  return ScoreAfter(std::move(std::get<std::vector<TokenId>>(context)),
                    std::get<std::vector<TokenId>>(continuation), options);
}

RequestOrFault ScoreChat(std::string_view text, const Tokenizer& tokenizer,
                         const ReaderOptions& options) {
  std::variant<ChatPair, LineFault> read = ReadChatPair(text, tokenizer, options);
  if (auto* fault = std::get_if<LineFault>(&read)) return std::move(*fault);
  auto& pair = std::get<ChatPair>(read);
  return ScoreAfter(std::move(pair.context), pair.continuation, options);
}

RequestOrFault ScoreTokenIds(const json& line, const ReaderOptions& options) {
  TokensOrFault ids = ReadTokenIds(line.at("token_ids"), "token_ids", options.vocab_rows);
  if (auto* fault = std::get_if<LineFault>(&ids)) return std::move(*fault);
  return ScoreWhole({std::move(std::get<std::vector<TokenId>>(ids)), 1, 1}, options);
}

RequestOrFault ScorePair(const std::string& context, const std::string& continuation,
                         const Line& line) {
  const std::string whole = context + continuation;
  const std::string_view stripped(context.data(), SizeWithoutSpacesAtEnd(context));
  if (MaybeFault fault = CheckTextLength(continuation, line.tokenizer, line.options))
    return std::move(*fault);
  TokensOrFault encoded_whole = EncodeText(whole, line.tokenizer, line.options);
  if (auto* fault = std::get_if<LineFault>(&encoded_whole)) return std::move(*fault);
  // Nothing is the start token alone.
  TokensOrFault encoded_context = EncodeText(stripped, line.tokenizer, line.options);
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
  return ScoreFrom(std::move(tokens), head.size(), line.options);
}

}  // namespace

bool IsScoreKey(std::string_view key) {
  return std::ranges::any_of(
      kForms, [&](const ScoreForm& form) { return key == form.first || key == form.second; });
}

RequestOrFault ReadScoreLine(const json& line, std::string_view text, const Tokenizer& tokenizer,
                             const ReaderOptions& options, LineNotes& notes) {
  if (MaybeFault fault = CheckScoreKeys(line, options.strict, notes)) return std::move(*fault);
  std::variant<ScoreForm, LineFault> form = FindForm(line);
  if (auto* fault = std::get_if<LineFault>(&form)) return std::move(*fault);
  const std::string_view key = std::get<ScoreForm>(form).first;
  if (key == "messages") return ScoreChat(text, tokenizer, options);
  if (key == "token_ids") return ScoreTokenIds(line, options);
  if (key == "context_token_ids") return ScoreIdPair(line, options);
  if (key == "text")
    return ReadScoreText(line.at(key).get_ref<const std::string&>(), tokenizer, options);
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
  return ScoreWhole({std::move(tokens), 1, num_unscored}, options);
}

}  // namespace spillway
