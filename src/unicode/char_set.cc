#include "src/unicode/char_set.h"

#include <algorithm>

namespace spillway {
namespace {

constexpr char32_t kTableChars = 0x10000;  // 8 KiB
constexpr std::size_t kFewRanges = 2;      // compared faster than looked up

}  // namespace

void CharSet::Add(const CharSet& other) { others_.push_back(other); }

void CharSet::Finish() {
  const bool is_few = categories_ == 0 && !space_ && !other_than_space_ && others_.empty() &&
                      ranges_.size() <= kFewRanges;
  if (is_few) return;
  std::vector<uint64_t> bits(kTableChars / 64);
  for (char32_t c = 0; c < kTableChars; ++c) {
    if (Evaluate(c)) bits[c / 64] |= uint64_t{1} << c % 64;
  }
  bits_ = std::move(bits);
}

bool CharSet::Evaluate(char32_t c) const {
  const bool found = std::any_of(ranges_.begin(), ranges_.end(),
                                 [&](const Range& r) { return c >= r.first && c <= r.last; }) ||
                     (categories_ != 0 && (CategoryOf(c) & categories_) != 0) ||
                     (space_ && IsSpace(c)) || (other_than_space_ && !IsSpace(c)) ||
                     std::any_of(others_.begin(), others_.end(),
                                 [&](const CharSet& other) { return other.Contains(c); });
  return found != negated_;
}

}  // namespace spillway
