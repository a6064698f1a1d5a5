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

// Requires: valid UTF-8.
std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text);

std::string ReplaceAll(std::string_view text, const ReplaceStep& replace);

}  // namespace spillway
