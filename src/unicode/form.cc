#include "src/unicode/form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "spillway/error.h"
#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

using CodePointText = std::vector<utf8proc_int32_t>;

bool IsCompatible(UnicodeForm form) {
  return form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
}

bool Composes(UnicodeForm form) { return form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc; }

// True of a character that divides the text into parts composed apart: it stays as it is, nothing
// composes with it, and no mark moves past it. True of what the reference's Unicode does not know
// yet, and of U+11A7, a vowel that utf8proc 2.8 drops behind a syllable without a final consonant.
bool StandsAlone(char32_t c, UnicodeForm form) {
  return c == 0x11A7 || IsNewerChar(c) || (IsCompatible(form) && IsNewerCompatibleChar(c));
}

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void AppendDecomposed(char32_t c, UnicodeForm form, CodePointText& out) {
  std::array<utf8proc_int32_t, 32> parts;  // no decomposition has more than 18
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE |
                                                      (IsCompatible(form) ? UTF8PROC_COMPAT : 0));
  const utf8proc_ssize_t length = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts.data(), std::ssize(parts), options, nullptr);
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

// Orders the decomposed `text`, composes it where the form does, moves it to the end of `out` and
// leaves `text` empty.
void AppendOrdered(CodePointText& text, UnicodeForm form, std::string& out) {
  OrderMarks(text);
  utf8proc_ssize_t length = std::ssize(text);
  if (Composes(form)) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    length = utf8proc_normalize_utf32(text.data(), length, options);
    SPILLWAY_CHECK(length >= 0);
  }
  for (const utf8proc_int32_t c : std::span(text).first(static_cast<std::size_t>(length)))
    AppendCodePoint(static_cast<char32_t>(c), out);
  text.clear();
}

// Bytes below it begin no character that the form changes: for C, no mark and no second character
// of a composite is below U+0300; for D, no composite below U+00C0; for KC and KD, none is ASCII.
unsigned char FirstChanging(UnicodeForm form) {
  if (form == UnicodeForm::kNfc) return 0xCC;
  return form == UnicodeForm::kNfd ? 0xC3 : 0xC2;
}

}  // namespace

std::string ToForm(UnicodeForm form, std::string_view utf8) {
  const auto may_change = [&](char byte) {
    return static_cast<unsigned char>(byte) >= FirstChanging(form);
  };
  if (std::none_of(utf8.begin(), utf8.end(), may_change)) return std::string(utf8);
  CodePointText text;
  std::string out;
  for (const char32_t c : CodePoints(utf8)) {
    if (!StandsAlone(c, form)) {
      AppendDecomposed(c, form, text);
      continue;
    }
    AppendOrdered(text, form, out);
    AppendCodePoint(c, out);
  }
  AppendOrdered(text, form, out);
  return out;
}

}  // namespace spillway
