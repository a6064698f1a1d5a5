// Parts that lines of every form share: custom_id, token ids, encoded text. Plain functions; any
// thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/requests/line_fault.h"
#include "src/requests/request_lines.h"  // ReaderOptions
#include "src/tokenizer/tokenizer.h"

namespace spillway {

using TokensOrFault = std::variant<std::vector<TokenId>, LineFault>;

LineFault InvalidValue(std::string message);

// The key's value; null where it is absent or null. Requires: an object.
const nlohmann::json* FindSet(const nlohmann::json& object, std::string_view key);

// The line's custom_id; empty where it is missing, null or "": the line number takes its place.
// Control characters are kept; JSON escapes them on the way out. Requires: an object.
std::variant<std::string, LineFault> ReadCustomId(const nlohmann::json& line);

// A list of at least one id that the model has a row for, which may be written 4.0. `key` is named
// in faults.
TokensOrFault ReadTokenIds(const nlohmann::json& list, std::string_view key, int64_t vocab_rows);

// "context_length_exceeded" for a text whose bytes alone prove that it has too many tokens for the
// model's positions: it is not encoded, where it is not to be cut.
MaybeFault CheckTextLength(std::string_view text, const Tokenizer& tokenizer,
                           const ReaderOptions& options);

// A request's prompt and limit together, of a line or of a text to score.
MaybeFault CheckLength(const Request& request, const ReaderOptions& options);

// Text as the reference tokenizer encodes it, start token included; an empty one is the start token
// alone, and "empty_prompt" where the family has none. "no_tokenizer": there is none.
TokensOrFault EncodeText(std::string_view text, const Tokenizer& tokenizer,
                         const ReaderOptions& options);

// CheckTextLength, then EncodeText.
TokensOrFault EncodePrompt(std::string_view text, const Tokenizer& tokenizer,
                           const ReaderOptions& options);

}  // namespace spillway
