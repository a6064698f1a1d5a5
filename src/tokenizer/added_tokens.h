// Tokens that stand in the text as written ("</s>"), found before the text is taken apart, as the
// reference finds them. Thread rule: immutable after construction; const methods from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spillway/model.h"           // TokenId
#include "src/tokenizer/tokenizer.h"  // SpecialText

namespace spillway {

struct AddedToken {
  std::string content;
  TokenId id = -1;
  bool special = false;      // not part of decoded text; plain text under SpecialText::kPlain
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space in front along
  bool rstrip = false;       // takes the white space behind along
  bool normalized = false;   // looked for after normalisation instead of before
};

// A part of a text: an added token, or text (id < 0) between them.
struct Segment {
  std::string_view text;
  TokenId id = -1;
};

// Finds a set of tokens: the leftmost, of equally left ones the longest, of equal ones the first.
class AddedTokenFinder {
 public:
  // `patterns[i]` is what tokens[i] looks like in the text.
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);

  // The non-empty segments of `text`, in order. Views of `text`. O(length of text + matches *
  // longest pattern).
  std::vector<Segment> Split(std::string_view text, SpecialText special) const;

 private:
  struct Match {
    std::size_t end = 0;
    int32_t token = -1;
  };

  void AddPattern(std::string_view pattern, int32_t token);
  Match LongestAt(std::string_view text, std::size_t at) const;
  bool Counts(const AddedToken& token, std::string_view text, std::size_t start, std::size_t end,
              SpecialText special) const;

  std::vector<AddedToken> tokens_;
  // A trie over bytes: child node by (node, byte), and the token that ends in a node.
  std::unordered_map<uint64_t, int32_t> children_;
  std::vector<int32_t> token_of_node_ = {-1};
  std::array<int32_t, 256> first_nodes_;  // the root's children; most bytes end the walk here
};

}  // namespace spillway
