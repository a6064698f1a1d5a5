// Parts that lines of every form share: the keys that are allowed, custom_id, token ids, encoded
// text. Plain functions; any thread.
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

// "unknown_key" names the first key that is not `known`, and `where` it stands.
// Requires: an object.
template <typename Known>
MaybeFault CheckKeys(const nlohmann::json& object, std::string_view where, Known known);

// The line's custom_id; empty where it is missing, null or "": the line number takes its place.
// Control characters are kept; JSON escapes them on the way out. Requires: an object.
std::variant<std::string, LineFault> ReadCustomId(const nlohmann::json& line);

// A list of at least one id that the model has a row for. `key` is named in faults.
TokensOrFault ReadTokenIds(const nlohmann::json& list, std::string_view key, int64_t vocab_rows);

// "context_length_exceeded" for a text whose bytes alone prove that it has too many tokens for the
// model's positions: it is not encoded.
MaybeFault CheckTextLength(std::string_view text, const Tokenizer& tokenizer,
                           const ReaderOptions& options);

// Text as the reference tokenizer encodes it, start token included; an empty one is the start token
// alone, and "empty_prompt" where the family has none. As CheckTextLength.
TokensOrFault EncodePrompt(std::string_view text, const Tokenizer& tokenizer,
                           const ReaderOptions& options);

// Implementation.

LineFault UnknownKey(std::string_view key, std::string_view where);

template <typename Known>
MaybeFault CheckKeys(const nlohmann::json& object, std::string_view where, Known known) {
  for (const auto& [name, value] : object.items()) {
    if (!known(name)) return UnknownKey(name, where);
  }
  return std::nullopt;
}

}  // namespace spillway
