#include "src/unicode/char_class.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <vector>

#include "src/unicode/utf8.h"

namespace spillway {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

struct CodePointValue {
  char32_t first;
  char32_t last;
  int32_t value;
};

#include "src/unicode/categories.inc"
#include "src/unicode/tables.inc"

// Two letters each, in the order of their numbers.
constexpr std::string_view kCategoryNames =
    "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";

constexpr char32_t kDirect = 0x10000;  // the first plane is looked up by one load

// One bit per code point of the first plane, 8 KiB per set.
class CodePointSet {
 public:
  explicit CodePointSet(std::span<const CodePointRange> ranges) : ranges_(ranges) {
    for (const CodePointRange& range : ranges) {
      for (char32_t c = range.first; c <= range.last && c < kDirect; ++c)
        bits_[c / 64] |= uint64_t{1} << c % 64;
    }
  }

  bool Contains(char32_t c) const {
    if (c < kDirect) return (bits_[c / 64] >> c % 64 & 1) != 0;
    // Ranges are sorted and disjoint.
    const auto after = std::ranges::upper_bound(ranges_, c, {}, &CodePointRange::first);
    return after != ranges_.begin() && c <= std::prev(after)->last;
  }

 private:
  std::array<uint64_t, kDirect / 64> bits_{};
  std::span<const CodePointRange> ranges_;
};

// The value of the range that holds `c`, 0 for none.
int32_t ValueIn(std::span<const CodePointValue> ranges, char32_t c) {
  const auto after = std::ranges::upper_bound(ranges, c, {}, &CodePointValue::first);
  const bool inside = after != ranges.begin() && c <= std::prev(after)->last;
  return inside ? std::prev(after)->value : 0;
}

// Category numbers of the first plane.
std::vector<uint8_t> MakeDirectCategories() {
  std::vector<uint8_t> numbers(kDirect);
  for (const CodePointValue& range : kCategories) {
    for (char32_t c = range.first; c <= range.last && c < kDirect; ++c)
      numbers[c] = static_cast<uint8_t>(range.value);
  }
  return numbers;
}

}  // namespace

CategorySet CategoryOf(char32_t c) {
  static const std::vector<uint8_t> direct = MakeDirectCategories();
  return CategorySet{1} << (c < kDirect ? direct[c] : ValueIn(kCategories, c));
}

std::optional<CategorySet> CategoriesNamed(std::string_view name) {
  CategorySet found = 0;
  if (name.empty() || name.size() > 2) return std::nullopt;
  for (std::size_t at = 0; at < kCategoryNames.size(); at += 2) {
    if (kCategoryNames.substr(at, 2).starts_with(name)) found |= CategorySet{1} << at / 2;
  }
  return found == 0 ? std::nullopt : std::optional(found);
}

bool IsLetter(char32_t c) {
  static const CategorySet letters = *CategoriesNamed("L");
  return (CategoryOf(c) & letters) != 0;
}

bool IsNumber(char32_t c) {
  static const CategorySet numbers = *CategoriesNamed("N");
  return (CategoryOf(c) & numbers) != 0;
}

bool IsSpace(char32_t c) {
  static const CodePointSet set(kSpaceRanges);
  return set.Contains(c);
}

bool IsDigitsChar(char32_t c) {
  static const CodePointSet set(kDigitsRanges);
  return set.Contains(c);
}

bool IsWordChar(char32_t c) {
  static const CodePointSet set(kWordRanges);
  return set.Contains(c);
}

bool IsStripChar(char32_t c) {
  static const CodePointSet set(kStripRanges);
  return set.Contains(c);
}

bool IsPunctuation(char32_t c) {
  static const CodePointSet set(kPunctuationRanges);
  return set.Contains(c);
}

bool IsAccent(char32_t c) {
  static const CodePointSet set(kAccentRanges);
  return set.Contains(c);
}

bool IsNewerChar(char32_t c) {
  static const CodePointSet set(kNewerRanges);
  return set.Contains(c);
}

bool IsNewerCompatibleChar(char32_t c) {
  static const CodePointSet set(kNewerCompatibleRanges);
  return set.Contains(c);
}

std::string ToLowerCase(std::string_view utf8) {
  constexpr char32_t kDottedCapitalI = 0x130;  // the only one that becomes two: i and a dot above
  std::string out;
  out.reserve(utf8.size());
  for (std::size_t at = 0; at < utf8.size();) {
    const CodePoint point = CodePointAt(utf8, at);
    at += point.bytes;
    if (point.value == kDottedCapitalI) {
      out += "i\xCC\x87";
      continue;
    }
    const int64_t lower = int64_t{point.value} + ValueIn(kLowerCase, point.value);
    AppendCodePoint(static_cast<char32_t>(lower), out);
  }
  return out;
}

}  // namespace spillway
