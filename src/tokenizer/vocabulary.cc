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

// Refuses ids that are taken: where the vocabulary has holes, the reference's next free id can be.
void CheckNewIds(const std::vector<AddedToken>& placed, const StringMap<TokenId>& vocabulary,
                 const std::filesystem::path& file) {
  std::unordered_set<TokenId> used;
  for (const auto& [token, id] : vocabulary) used.insert(id);
  for (const AddedToken& token : placed) {
    if (vocabulary.contains(token.content) || used.insert(token.id).second) continue;
    RefuseTokenizer(file,
                    fmt::format("the added token \"{}\" would share the id {} with another token",
                                Printable(token.content), token.id));
  }
}

[[noreturn]] void RefuseRow(TokenId id, std::string_view token, int64_t vocab_rows,
                            const std::filesystem::path& file, const char* advice) {
  RefuseTokenizer(file,
                  fmt::format("the token \"{}\" has id {}, but the model's embedding has {} rows",
                              Printable(token), id, vocab_rows),
                  advice);
}

// Models are published with such tokens, which no prompt may have.
void CheckRowOfAdded(const AddedToken& token, int64_t vocab_rows,
                     const std::filesystem::path& file) {
  if (token.id < vocab_rows) return;
  RefuseRow(token.id, token.content, vocab_rows, file,
            "use the model's own tokenizer, or take this added token out of its files");
}

}  // namespace

void CheckRow(TokenId id, std::string_view token, int64_t vocab_rows,
              const std::filesystem::path& file) {
  if (id >= vocab_rows)
    RefuseRow(id, token, vocab_rows, file, "use the tokenizer files that belong to this model");
}

StringMap<TokenId> ReadVocabulary(const JsonNode& tokens, int64_t vocab_rows,
                                  const std::filesystem::path& file) {
  const nlohmann::json& entries = tokens.value();
  if (!entries.is_object()) tokens.Refuse("the vocabulary is not an object of token: id");
  if (entries.empty()) tokens.Refuse("the vocabulary is empty");
  StringMap<TokenId> vocabulary;
  vocabulary.reserve(entries.size());
  std::unordered_set<TokenId> used;
  for (const auto& [token, value] : entries.items()) {
    const TokenId id = JsonTokenId(value, token, tokens);
    CheckRow(id, token, vocab_rows, file);
    if (!used.insert(id).second)
      tokens.Refuse(
          fmt::format("the id {} belongs to two tokens, one of them \"{}\"", id, Printable(token)));
    vocabulary.emplace(token, id);
  }
  return vocabulary;
}

std::vector<AddedToken> PlaceAddedTokens(const std::vector<AddedToken>& required,
                                         const std::vector<AddedToken>& optional,
                                         const StringMap<TokenId>& vocabulary, int64_t vocab_rows,
                                         const std::filesystem::path& file) {
  std::vector<AddedToken> placed;
  StringMap<std::size_t> places;
  auto next = static_cast<TokenId>(vocabulary.size());
  const auto place = [&](AddedToken token, bool may_lack_row) {
    CheckContent(token, file);
    const auto entry = vocabulary.find(token.content);
    token.id = entry != vocabulary.end() ? entry->second : next;
    if (may_lack_row && token.id >= vocab_rows) return;
    CheckRowOfAdded(token, vocab_rows, file);
    next = std::max(next, token.id + 1);
    places.emplace(token.content, placed.size());
    placed.push_back(std::move(token));
  };
  for (const AddedToken& token : required) {
    if (!places.contains(token.content)) place(token, false);
  }
  const std::size_t num_required = placed.size();
  for (const AddedToken& token : optional) {
    const auto found = places.find(token.content);
    if (found == places.end()) {
      place(token, true);
    } else if (found->second >= num_required) {
      const TokenId id = placed[found->second].id;
      placed[found->second] = token;
      placed[found->second].id = id;
    }
  }
  CheckNewIds(placed, vocabulary, file);
  std::stable_partition(placed.begin(), placed.end(),
                        [](const AddedToken& token) { return token.special; });
  return placed;
}

TokenId IdOfAdded(const std::vector<AddedToken>& tokens, std::string_view content,
                  const std::filesystem::path& file) {
  for (const AddedToken& token : tokens) {
    if (token.content == content) return token.id;
  }
  RefuseTokenizer(file, fmt::format("the start or end token \"{}\" is not in the vocabulary",
                                    Printable(content)));
}

}  // namespace spillway
