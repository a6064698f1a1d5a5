#include "src/unicode/char_set.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

namespace spillway {
namespace {

constexpr char32_t kTableChars = 0x10000;  // 8 KiB
constexpr std::size_t kFewRanges = 2;      // compared faster than looked up

using Bits = std::vector<uint64_t>;  // of the first kTableChars

void SetBit(Bits& bits, char32_t c) { bits[c / 64] |= uint64_t{1} << c % 64; }

void Unite(Bits& bits, const Bits& more) {
  std::ranges::transform(bits, more, bits.begin(), std::bit_or{});
}

Bits Complement(Bits bits) {
  for (uint64_t& word : bits) word = ~word;
  return bits;
}

// Characters of each category, by its number.
const std::vector<Bits>& BitsOfCategories() {
  static const std::vector<Bits> all = [] {
    std::vector<Bits> found(std::numeric_limits<CategorySet>::digits, Bits(kTableChars / 64));
    for (char32_t c = 0; c < kTableChars; ++c) SetBit(found[std::countr_zero(CategoryOf(c))], c);
    return found;
  }();
  return all;
}

const Bits& SpaceBits() {
  static const Bits space = [] {
    Bits found(kTableChars / 64);
    for (char32_t c = 0; c < kTableChars; ++c) {
      if (IsSpace(c)) SetBit(found, c);
    }
    return found;
  }();
  return space;
}

}  // namespace

void CharSet::Add(const CharSet& other) { others_.push_back(other); }

void CharSet::Finish() {
  const bool is_few = categories_ == 0 && !space_ && !other_than_space_ && others_.empty() &&
                      ranges_.size() <= kFewRanges;
  if (!is_few) bits_ = FirstPlane();
}

// Bits of the first characters, from what is known of each part.
std::vector<uint64_t> CharSet::FirstPlane() const {
  Bits bits(kTableChars / 64);
  for (const Range& range : ranges_) {
    for (char32_t c = range.first; c <= range.last && c < kTableChars; ++c) SetBit(bits, c);
  }
  for (CategorySet left = categories_; left != 0; left &= left - 1)
    Unite(bits, BitsOfCategories()[std::countr_zero(left)]);
  if (space_) Unite(bits, SpaceBits());
  if (other_than_space_) Unite(bits, Complement(SpaceBits()));
  for (const CharSet& other : others_)
    Unite(bits, other.bits_.empty() ? other.FirstPlane() : other.bits_);
  return negated_ ? Complement(std::move(bits)) : bits;
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
