// Takes a text apart at what a pattern finds: the reference's Split and the pre-tokenizers that are
// Splits with a fixed pattern. Thread rule: immutable values; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/tokenizer/split_pattern.h"
#include "src/unicode/regex.h"

namespace spillway {

// Every character that a test accepts is a match of its own.
using CharTest = bool (*)(char32_t);

// std::string: that text, which is not empty.
using SplitTarget = std::variant<SplitPattern, Regex, std::string, CharTest>;

// Fate of a match; everything between matches is a piece.
enum class SplitBehavior {
  kRemoved,             // it vanishes
  kIsolated,            // it is a piece of its own
  kMergedWithPrevious,  // it ends the piece before it
  kMergedWithNext,      // it begins the piece behind it
  kContiguous           // neighbouring matches are one piece
};

struct SplitStep {
  SplitTarget target;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool inverted = false;  // what is between matches counts as the matches
};

// The non-empty pieces of `text`, in order. Views of `text`. Requires: valid UTF-8.
std::vector<std::string_view> SplitText(const SplitStep& step, std::string_view text);

}  // namespace spillway
