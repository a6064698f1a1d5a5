// Byte-pair encoding of one word: characters joined by ranked merges, in n log n, the ids the
// reference gives. Thread rule: immutable after construction; const methods from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/model.h"  // TokenId

namespace spillway {

// Lets std::string keys be found by a std::string_view without a copy.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
template <typename Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

struct BpeOptions {
  // Token for characters that the vocabulary lacks; absent: they vanish.
  std::optional<std::string> unknown;
  bool fuse_unknown = false;  // neighbouring unknown characters become one token
  // An unknown character becomes the tokens of its bytes, "<0x0A>", if all are there.
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token as a whole is never taken apart
};

class BpeModel {
 public:
  using Merge = std::pair<std::string, std::string>;

  // Merges are in order of rank; of two equal ones the later counts.
  // Throws: std::invalid_argument, printable, when a merge's part, its result or the unknown token
  // has no id.
  BpeModel(StringMap<TokenId> vocabulary, const std::vector<Merge>& merges, BpeOptions options);

  // Appends the ids of `word`. Requires: valid UTF-8.
  void Encode(std::string_view word, std::vector<TokenId>& out) const;

  std::optional<TokenId> Find(std::string_view token) const;
  const StringMap<TokenId>& vocabulary() const { return vocabulary_; }
  // True where unknown characters become the tokens of their bytes, and all of these are there.
  bool has_byte_tokens() const {
    return !byte_tokens_.empty() && std::ranges::find(byte_tokens_, -1) == byte_tokens_.end();
  }

 private:
  struct Rule {
    uint32_t rank;
    TokenId merged;
  };

  // Open addressing: one cache line per probe, where a node-based map costs two misses for each of
  // a word's pairs.
  class RuleTable {
   public:
    void Reserve(std::size_t num_rules);
    void Set(TokenId left, TokenId right, Rule rule);
    const Rule* Find(TokenId left, TokenId right) const;

   private:
    struct Slot {
      uint64_t key;
      Rule rule;
    };
    std::size_t SlotOf(uint64_t key) const;
    std::vector<Slot> slots_;
  };

  TokenId IdOf(const std::string& token, std::size_t merge_line) const;
  void AddRules(const std::vector<Merge>& merges);
  std::vector<TokenId> Characters(std::string_view word) const;
  bool AppendByteTokens(std::string_view character, std::vector<TokenId>& out) const;
  void Join(const std::vector<TokenId>& characters, std::vector<TokenId>& out) const;

  StringMap<TokenId> vocabulary_;
  BpeOptions options_;
  TokenId unknown_ = -1;
  std::vector<TokenId> byte_tokens_;  // by byte, -1 for none; empty without byte_fallback
  // By code point below kNumLow, -1 for none: most characters of most words.
  std::vector<TokenId> low_characters_;
  RuleTable rules_;
};

}  // namespace spillway
