// Checks that are the same for every form of a vocabulary file. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "src/base/json_node.h"
#include "src/tokenizer/added_tokens.h"
#include "src/tokenizer/bpe_model.h"

namespace spillway {

// {"token": id, ...}. Throws: Error kTokenizer for a wrong type, an id out of 0 .. vocab_rows - 1
// or used twice.
StringMap<TokenId> ReadVocabulary(const JsonNode& tokens, int64_t vocab_rows,
                                  const std::filesystem::path& file);

// Throws: Error kTokenizer with both numbers when the model has no row for `id`.
void CheckRow(TokenId id, std::string_view token, int64_t vocab_rows,
              const std::filesystem::path& file);

// Gives each added token its id as the reference does: its place in the vocabulary, else the next
// free one behind. `required` come first, and of several with one text the first counts. `optional`
// are named by a settings file: of several with one text the last one's flags count, and those that
// the model has no row for are left out. The result has special tokens first. Throws: Error
// kTokenizer for an empty or overlong token, or a required one without a row.
std::vector<AddedToken> PlaceAddedTokens(const std::vector<AddedToken>& required,
                                         const std::vector<AddedToken>& optional,
                                         const StringMap<TokenId>& vocabulary, int64_t vocab_rows,
                                         const std::filesystem::path& file);

// The id of the added token `content`, for a start or end token. Throws: Error kTokenizer when
// there is none.
TokenId IdOfAdded(const std::vector<AddedToken>& tokens, std::string_view content,
                  const std::filesystem::path& file);

}  // namespace spillway
