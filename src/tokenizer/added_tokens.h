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
  bool split = false;        // plain text wherever it is written ("split_special_tokens")
};

// A part of a text: an added token, or text (id < 0) between them.
struct Segment {
  std::string_view text;
  TokenId id = -1;
};

// Finds a set of tokens: the leftmost, of equally left ones the longest, of equal ones the first.
// An automaton of Aho and Corasick over the reversed patterns, run from the text's end to its
// begin, knows at each place the longest token that begins there.
class AddedTokenFinder {
 public:
  // `patterns[i]` is what tokens[i] looks like in the text. Throws: Error kTokenizer: they have
  // more than 4 MiB.
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);

  // The non-empty segments of `text`, in order. Views of `text`. Linear in the text's length.
  std::vector<Segment> Split(std::string_view text, SpecialText special) const;

  // The longest token at a place where one begins.
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    int32_t token = -1;
  };
  struct Matches {
    std::vector<Match> matches;  // by begin, the last one first
    int64_t num_steps = 0;       // of the automaton: at most two for each byte
  };
  Matches FindAll(std::string_view text) const;

 private:
  struct Node {
    int32_t parent = 0;
    int32_t depth = 0;
    int32_t fallback = 0;  // of the longest suffix that is in the trie
    int32_t token = -1;    // the longest one that ends here; not only as a whole path
    char byte = 0;         // of the edge to here
  };

  void AddPattern(std::string_view pattern, int32_t token);
  void SetFallbacks();
  int32_t ChildOf(int32_t node, char byte) const;
  bool Counts(const AddedToken& token, std::string_view text, const Match& match,
              SpecialText special) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::size_t> lengths_;                // of the patterns
  std::unordered_map<uint64_t, int32_t> children_;  // by (node, byte)
  std::vector<Node> nodes_ = {Node{}};
  std::array<int32_t, 256> first_nodes_;  // the root's children; most bytes lead nowhere
};

}  // namespace spillway
