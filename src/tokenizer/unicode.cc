#include "src/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>

#include "src/tokenizer/utf8.h"

namespace spillway {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

struct Decomposition {
  char32_t from;
  uint16_t at;  // in kDecompositionText
  uint16_t length;
};

struct CombiningRange {
  char32_t first;
  char32_t last;
  uint8_t combining_class;
};

struct Composition {
  char32_t first;
  char32_t second;
  char32_t composed;
};

#include "src/tokenizer/unicode_tables.inc"

// Hangul is composed by arithmetic (Unicode section 3.12).
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeading = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTrailing = 0x11A7;
constexpr char32_t kNumLeading = 19;
constexpr char32_t kNumVowels = 21;
constexpr char32_t kNumTrailing = 28;
constexpr char32_t kNumSyllables = kNumLeading * kNumVowels * kNumTrailing;

// The range that holds `c`, or nullptr. Ranges are sorted and disjoint.
template <typename Range>
const Range* FindRange(std::span<const Range> ranges, char32_t c) {
  const auto it =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  if (it == ranges.begin() || std::prev(it)->last < c) return nullptr;
  return &*std::prev(it);
}

// One bit per code point of the first two planes' most used part, so that a lookup there is one
// load.
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
    return FindRange(ranges_, c) != nullptr;
  }

 private:
  static constexpr char32_t kDirect = 0x10000;  // 8 KiB per set
  std::array<uint64_t, kDirect / 64> bits_{};
  std::span<const CodePointRange> ranges_;
};

uint8_t CombiningClass(char32_t c) {
  if (c < 0x300) return 0;
  const CombiningRange* range = FindRange<CombiningRange>(kCombiningRanges, c);
  return range == nullptr ? uint8_t{0} : range->combining_class;
}

void AppendDecomposed(char32_t c, std::u32string& out) {
  if (c - kSyllables < kNumSyllables) {
    const char32_t index = c - kSyllables;
    out += kLeading + index / (kNumVowels * kNumTrailing);
    out += kVowels + index % (kNumVowels * kNumTrailing) / kNumTrailing;
    if (index % kNumTrailing != 0) out += kTrailing + index % kNumTrailing;
    return;
  }
  const auto it =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                       [](const Decomposition& row, char32_t value) { return row.from < value; });
  if (c < 0xC0 || it == std::end(kDecompositions) || it->from != c) {
    out += c;
  } else {
    out.append(kDecompositionText + it->at, it->length);
  }
}

// The primary composite of the two, 0 when there is none.
char32_t Compose(char32_t first, char32_t second) {
  if (first - kLeading < kNumLeading && second - kVowels < kNumVowels) {
    return kSyllables + ((first - kLeading) * kNumVowels + (second - kVowels)) * kNumTrailing;
  }
  const bool open_syllable =
      first - kSyllables < kNumSyllables && (first - kSyllables) % kNumTrailing == 0;
  if (open_syllable && second > kTrailing && second < kTrailing + kNumTrailing)
    return first + (second - kTrailing);
  const auto key = [](const Composition& row) { return uint64_t{row.first} << 32 | row.second; };
  const uint64_t wanted = uint64_t{first} << 32 | second;
  const auto it =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions), wanted,
                       [&](const Composition& row, uint64_t value) { return key(row) < value; });
  return it != std::end(kCompositions) && key(*it) == wanted ? it->composed : 0;
}

// Canonical ordering: every run of marks sorted by combining class, stably.
void OrderMarks(std::u32string& text) {
  const auto is_starter = [](char32_t c) { return CombiningClass(c) == 0; };
  for (auto at = text.begin(); at != text.end();) {
    const auto run = std::find_if_not(at, text.end(), is_starter);
    const auto end = std::find_if(run, text.end(), is_starter);
    std::stable_sort(run, end,
                     [](char32_t a, char32_t b) { return CombiningClass(a) < CombiningClass(b); });
    at = end;
  }
}

// Canonical composition in place (Unicode D117): a character joins the last starter unless one
// between blocks it.
void ComposeInPlace(std::u32string& text) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t starter = kNone;
  std::size_t kept = 0;
  uint8_t last_class = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char32_t c = text[at];
    const uint8_t combining_class = CombiningClass(c);
    const bool adjacent = starter != kNone && kept == starter + 1;
    const bool blocked = starter == kNone || (!adjacent && last_class >= combining_class);
    const char32_t composed = blocked ? 0 : Compose(text[starter], c);
    if (composed != 0) {
      text[starter] = composed;
      continue;
    }
    if (combining_class == 0) starter = kept;
    last_class = combining_class;
    text[kept++] = c;
  }
  text.resize(kept);
}

}  // namespace

bool IsLetter(char32_t c) {
  static const CodePointSet set(kLetterRanges);
  return set.Contains(c);
}

bool IsNumber(char32_t c) {
  static const CodePointSet set(kNumberRanges);
  return set.Contains(c);
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

std::string ComposeNfc(std::string_view utf8) {
  // Nothing below U+0300 is a mark or has a second character that composes: such text is in form C
  // already.
  const auto is_high = [](char byte) { return static_cast<unsigned char>(byte) >= 0xCC; };
  if (std::none_of(utf8.begin(), utf8.end(), is_high)) return std::string(utf8);
  std::u32string text;
  for (const char32_t c : CodePoints(utf8)) AppendDecomposed(c, text);
  OrderMarks(text);
  ComposeInPlace(text);
  std::string out;
  for (const char32_t c : text) AppendCodePoint(c, out);
  return out;
}

}  // namespace spillway
