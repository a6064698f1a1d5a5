#include "src/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "spillway/error.h"
#include "src/tokenizer/utf8.h"

namespace spillway {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

#include "src/tokenizer/unicode_tables.inc"

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
    // Ranges are sorted and disjoint.
    const auto after = std::ranges::upper_bound(ranges_, c, {}, &CodePointRange::first);
    return after != ranges_.begin() && c <= std::prev(after)->last;
  }

 private:
  static constexpr char32_t kDirect = 0x10000;  // 8 KiB per set
  std::array<uint64_t, kDirect / 64> bits_{};
  std::span<const CodePointRange> ranges_;
};

using CodePointText = std::vector<utf8proc_int32_t>;

// Whether a character divides the text into parts composed apart: it stays as it is, nothing
// composes with it, and no mark moves past it. True of what the reference's Unicode does not know
// yet, and of U+11A7, a vowel that utf8proc 2.8 drops behind a syllable without a final consonant.
bool StandsAlone(char32_t c) {
  static const CodePointSet newer(kNewerRanges);
  return c == 0x11A7 || newer.Contains(c);
}

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void AppendDecomposed(char32_t c, CodePointText& out) {
  std::array<utf8proc_int32_t, 8> parts;  // no canonical decomposition has more than 4
  const utf8proc_ssize_t length =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), std::ssize(parts),
                              UTF8PROC_DECOMPOSE, nullptr);
  SPILLWAY_CHECK(length > 0 && length <= std::ssize(parts));
  out.insert(out.end(), parts.begin(), parts.begin() + length);
}

// Canonical ordering: every run of marks sorted by combining class, stably. utf8proc's own sorts by
// insertion: 16 s for 40,000 marks of alternating classes.
void OrderMarks(CodePointText& text) {
  const auto is_starter = [](utf8proc_int32_t c) { return CombiningClass(c) == 0; };
  for (auto at = text.begin(); at != text.end();) {
    const auto run = std::find_if_not(at, text.end(), is_starter);
    const auto end = std::find_if(run, text.end(), is_starter);
    std::ranges::stable_sort(run, end, {}, CombiningClass);
    at = end;
  }
}

// Composes the decomposed `text`, moves it to the end of `out` and leaves `text` empty.
void AppendComposed(CodePointText& text, std::string& out) {
  OrderMarks(text);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t length = utf8proc_normalize_utf32(text.data(), std::ssize(text), options);
  SPILLWAY_CHECK(length >= 0);
  for (const utf8proc_int32_t c : std::span(text).first(static_cast<std::size_t>(length)))
    AppendCodePoint(static_cast<char32_t>(c), out);
  text.clear();
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
  CodePointText text;
  std::string out;
  for (const char32_t c : CodePoints(utf8)) {
    if (!StandsAlone(c)) {
      AppendDecomposed(c, text);
      continue;
    }
    AppendComposed(text, out);
    AppendCodePoint(c, out);
  }
  AppendComposed(text, out);
  return out;
}

}  // namespace spillway
