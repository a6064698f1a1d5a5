// Changes text before it is taken apart: a chain of the reference's normalizers.
// Thread rule: immutable values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spillway {

struct NfcStep {};

// Puts `text` in front of text that is not empty.
struct PrependStep {
  std::string text;
};

// Puts `by` in every place of `what`, from left to right. Requires: `what` is not empty.
struct ReplaceStep {
  std::string what;
  std::string by;
};

using NormalizerStep = std::variant<NfcStep, PrependStep, ReplaceStep>;

// Requires: valid UTF-8.
std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text);

std::string ReplaceAll(std::string_view text, const ReplaceStep& replace);

}  // namespace spillway
