// Takes text apart into the words that BPE joins within: a chain of the reference's pre-tokenizers.
// Thread rule: immutable values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/tokenizer/text_split.h"

namespace spillway {

struct ByteLevelStep {
  bool add_prefix_space = false;
  bool use_regex = true;  // splits as kGpt2 first
};

struct DigitsStep {
  bool individual = false;
};

struct MetaspaceStep {
  enum class Prepend { kNever, kFirst, kAlways };
  char32_t replacement = U'\u2581';
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

// Runs of word characters and runs of other characters; white space vanishes.
struct WordsStep {};

using PreTokenizerStep =
    std::variant<SplitStep, ByteLevelStep, DigitsStep, MetaspaceStep, WordsStep>;

// Consecutive pieces of one buffer: piece i is text[ends[i - 1], ends[i]).
struct Pieces {
  std::string text;
  std::vector<std::size_t> ends;
  bool lost_start = false;  // a step took away what opened the text

  // Ends the piece that was appended to `text`; an empty piece is none.
  void End() {
    if (text.size() > (ends.empty() ? 0 : ends.back())) ends.push_back(text.size());
  }
  std::string_view Piece(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(text).substr(begin, ends[i] - begin);
  }
};

// Requires: valid UTF-8. `opens_text`: nothing came before, not even an added token. Throws: as
// CheckGrowth, over MostBytesOf(text).
Pieces PreTokenize(const std::vector<PreTokenizerStep>& steps, std::string_view text,
                   bool opens_text);

}  // namespace spillway
