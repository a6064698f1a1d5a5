#include "src/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "spillway/error.h"
#include "src/tokenizer/json_file.h"

namespace spillway {
namespace {

// The longest published one has about 60 bytes; the search for them costs up to this much per byte
// of a prompt.
constexpr std::size_t kMaxAddedTokenBytes = 1024;

void CheckContent(const AddedToken& token, const std::filesystem::path& file) {
  if (token.content.empty()) RefuseTokenizer(file, "an added token is empty");
  if (token.content.size() > kMaxAddedTokenBytes) {
    RefuseTokenizer(
        file, fmt::format("the added token \"{}\" has {} bytes ({} at most)",
                          Printable(token.content), token.content.size(), kMaxAddedTokenBytes));
  }
}

}  // namespace

void CheckRow(TokenId id, std::string_view token, int64_t vocab_rows,
              const std::filesystem::path& file) {
  if (id < vocab_rows) return;
  RefuseTokenizer(file,
                  fmt::format("the token \"{}\" has id {}, but the model's embedding has {} rows",
                              Printable(token), id, vocab_rows),
                  "use the tokenizer files that belong to this model");
}

StringMap<TokenId> ReadVocabulary(const nlohmann::json& tokens, int64_t vocab_rows,
                                  const std::filesystem::path& file) {
  if (!tokens.is_object()) RefuseTokenizer(file, "the vocabulary is not an object of token: id");
  if (tokens.empty()) RefuseTokenizer(file, "the vocabulary is empty");
  StringMap<TokenId> vocabulary;
  vocabulary.reserve(tokens.size());
  std::unordered_set<TokenId> used;
  for (const auto& [token, value] : tokens.items()) {
    const TokenId id = JsonTokenId(value, token, file);
    CheckRow(id, token, vocab_rows, file);
    if (!used.insert(id).second)
      RefuseTokenizer(file, fmt::format("the id {} belongs to two tokens, one of them \"{}\"", id,
                                        Printable(token)));
    vocabulary.emplace(token, id);
  }
  return vocabulary;
}

std::vector<AddedToken> PlaceAddedTokens(const std::vector<AddedToken>& wanted,
                                         const StringMap<TokenId>& vocabulary, int64_t vocab_rows,
                                         const std::filesystem::path& file) {
  std::vector<AddedToken> placed;
  StringMap<std::size_t> places;
  TokenId next = static_cast<TokenId>(vocabulary.size());
  for (AddedToken token : wanted) {
    CheckContent(token, file);
    const auto [place, added] = places.try_emplace(token.content, placed.size());
    if (added) placed.push_back(token);
    AddedToken& target = placed[place->second];
    const auto entry = vocabulary.find(token.content);
    token.id = !added ? target.id : entry != vocabulary.end() ? entry->second : next;
    next = std::max(next, token.id + 1);
    CheckRow(token.id, token.content, vocab_rows, file);
    target = std::move(token);
  }
  std::stable_partition(placed.begin(), placed.end(),
                        [](const AddedToken& token) { return token.special; });
  return placed;
}

}  // namespace spillway
