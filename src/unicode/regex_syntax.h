// A pattern of a tokenizer's file as a tree: the part of Oniguruma's syntax (as Ruby has it) that
// published tokenizers use. Anything else is refused, so that no pattern means something else here
// than there. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/unicode/char_set.h"

namespace spillway {

struct RegexItem;
using RegexSequence = std::vector<RegexItem>;

struct RegexItem {
  enum class Kind {
    kRun,        // `set`, from `min` to `max` times
    kGroup,      // one of `branches`, or none of them when `min` is 0
    kAhead,      // one of `branches` matches here, nothing is taken
    kNotAhead,   // none of them does
    kTextStart,  // \A
    kTextEnd,    // \z
    kLineStart,  // ^
    kLineEnd     // $
  };
  static constexpr uint32_t kNoLimit = ~uint32_t{0};

  Kind kind = Kind::kRun;
  CharSet set;
  uint32_t min = 1;
  uint32_t max = 1;
  bool possessive = false;  // takes as many as it can and gives none back
  std::vector<RegexSequence> branches;
};

// The alternatives of `pattern`. Throws: std::invalid_argument, printable, that names what is not
// supported or malformed. Requires: valid UTF-8.
std::vector<RegexSequence> ParseRegex(std::string_view pattern);

}  // namespace spillway
