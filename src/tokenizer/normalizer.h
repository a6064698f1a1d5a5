// Changes text before it is taken apart: a chain of the reference's normalizers.
// Thread rule: immutable values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/unicode/form.h"
#include "src/unicode/regex.h"

namespace spillway {

struct FormStep {
  UnicodeForm form;
};

// Puts `text` in front of text that is not empty.
struct PrependStep {
  std::string text;
};

// Puts `by` in every place of `what`, from left to right. Requires: `what` is not empty.
struct ReplaceStep {
  std::string what;
  std::string by;
};

// Puts `by`, as it is written, in every place that the pattern matches.
struct ReplaceMatchesStep {
  Regex what;
  std::string by;
};

// Takes white space off.
struct StripStep {
  bool left = true;
  bool right = true;
};

struct LowerCaseStep {};
struct StripAccentsStep {};

using NormalizerStep = std::variant<FormStep, PrependStep, ReplaceStep, ReplaceMatchesStep,
                                    StripStep, LowerCaseStep, StripAccentsStep>;

// Most bytes that a chain may make of a text: Unicode's own forms make 11 of one at most. Whatever
// makes more is refused, since steps that double a text would never end.
constexpr std::size_t MostBytesOf(std::string_view text) {
  return 16 * text.size() + (std::size_t{64} << 10);
}

// Throws: Error kTokenizer: over `most` bytes.
void CheckGrowth(std::size_t bytes, std::size_t most);

// Requires: valid UTF-8. Throws: Error kTokenizer: over MostBytesOf(text).
std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text);

// Throws: as CheckGrowth.
std::string ReplaceAll(std::string_view text, const ReplaceStep& replace, std::size_t most);

}  // namespace spillway
