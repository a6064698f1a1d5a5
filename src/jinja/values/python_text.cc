#include "src/jinja/values/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "src/jinja/values/text_builder.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

struct SpecialCase {
  char32_t letter;
  std::array<char32_t, 3> upper;
  std::array<char32_t, 3> title;
};

constexpr SpecialCase kSpecialCases[] = {
#include "src/jinja/values/case_tables.inc"
};

const SpecialCase* FindSpecialCase(char32_t c) {
  const auto* found = std::ranges::lower_bound(kSpecialCases, c, {},
                                               [](const auto& entry) { return entry.letter; });
  return found != std::end(kSpecialCases) && found->letter == c ? found : nullptr;
}

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void AppendAll(const std::array<char32_t, 3>& points, std::string& out) {
  for (const char32_t point : points) {
    if (point != 0) AppendCodePoint(point, out);
  }
}

void AppendUpper(char32_t c, std::string& out) {
  if (const SpecialCase* special = FindSpecialCase(c)) return AppendAll(special->upper, out);
  AppendCodePoint(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
}

void AppendTitle(char32_t c, std::string& out) {
  if (const SpecialCase* special = FindSpecialCase(c)) return AppendAll(special->title, out);
  AppendCodePoint(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
}

bool HasUpperCase(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF);
}

bool HasLowerCase(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  const bool is_other =
      c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
  return category == UTF8PROC_CATEGORY_LL || is_other ||
         (category == UTF8PROC_CATEGORY_LM && (c <= 0x2B8 || (c >= 0x1D2C && c <= 0x1D6A)));
}

bool HasCase(char32_t c) {
  return HasUpperCase(c) || HasLowerCase(c) || CategoryOf(c) == UTF8PROC_CATEGORY_LT;
}

// Characters that a word goes through when it is asked whether a sigma ends it.
bool IsCaseIgnorable(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019;
  }
}

bool EndsWord(std::string_view text, std::size_t at, std::size_t bytes) {
  std::size_t before = at;
  while (before > 0) {
    const CodePoint c = CodePointBefore(text, before);
    if (!IsCaseIgnorable(c.value)) {
      if (!HasCase(c.value)) return false;
      break;
    }
    before -= c.bytes;
  }
  if (before == 0) return false;
  for (std::size_t after = at + bytes; after < text.size();) {
    const CodePoint c = CodePointAt(text, after);
    if (!IsCaseIgnorable(c.value)) return !HasCase(c.value);
    after += c.bytes;
  }
  return true;
}

void AppendLower(std::string_view text, std::size_t at, CodePoint c, std::string& out) {
  constexpr char32_t kSigma = 0x3A3;
  constexpr char32_t kDottedI = 0x130;
  if (c.value == kSigma) return AppendCodePoint(EndsWord(text, at, c.bytes) ? 0x3C2 : 0x3C3, out);
  if (c.value == kDottedI) {
    out += 'i';
    return AppendCodePoint(0x307, out);
  }
  AppendCodePoint(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))),
                  out);
}

// Room of a text that is made code point by code point: case mapping makes at most 3 bytes of one,
// and a text that grows has up to twice what it needs.
void CheckMapped(std::string_view text) { CheckRoom(6.0 * static_cast<double>(text.size())); }

template <typename Visit>
void ForEachPoint(std::string_view text, Visit visit) {
  Spend(1 + text.size() / 3);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    visit(at, c);
    at += c.bytes;
  }
}

bool IsIn(char32_t c, std::string_view characters) {
  SpendOnText(characters.size());
  std::string one;
  AppendCodePoint(c, one);
  return characters.find(one) != std::string_view::npos;
}

std::string Reversed(std::string_view text) {
  CheckRoom(static_cast<double>(text.size()));
  return {text.rbegin(), text.rend()};
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// A text with case where no letter that counts is `wrong`.
bool HasOnlyCase(std::string_view text, bool (*right)(char32_t), bool (*wrong)(char32_t)) {
  bool found = false;
  bool fits = true;
  ForEachPoint(text, [&](std::size_t, CodePoint c) {
    found |= right(c.value);
    fits &= !wrong(c.value) && CategoryOf(c.value) != UTF8PROC_CATEGORY_LT;
  });
  return found && fits;
}

}  // namespace

std::size_t NumCodePoints(std::string_view text) {
  SpendOnText(text.size());
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

Parts CodePointTexts(std::string_view text) {
  Parts texts;
  ForEachPoint(text,
               [&](std::size_t at, CodePoint c) { texts.push_back(text.substr(at, c.bytes)); });
  return texts;
}

std::size_t FindFirst(std::string_view text, std::string_view part, std::size_t from) {
  constexpr std::size_t kShortPart = 8;
  if (from > text.size()) return std::string_view::npos;
  // memmem is linear where string_view::find is not.
  const auto* found = static_cast<const char*>(
      memmem(text.data() + from, text.size() - from, part.data(), part.size()));
  const std::size_t at =
      found == nullptr ? std::string_view::npos : static_cast<std::size_t>(found - text.data());
  const std::size_t passed = std::min(at, text.size()) - from + part.size();
  SpendOnText(part.size() > kShortPart ? 2 * passed : passed);
  return at;
}

std::size_t FindLast(std::string_view text, std::string_view part) {
  const std::size_t at = FindFirst(Reversed(text), Reversed(part));
  return at == std::string_view::npos ? at : text.size() - part.size() - at;
}

bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsAlphabetic(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsPrintable(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string Upper(std::string_view text) {
  CheckMapped(text);
  std::string out;
  ForEachPoint(text, [&](std::size_t, CodePoint c) { AppendUpper(c.value, out); });
  return out;
}

std::string Lower(std::string_view text) {
  CheckMapped(text);
  std::string out;
  ForEachPoint(text, [&](std::size_t at, CodePoint c) { AppendLower(text, at, c, out); });
  return out;
}

std::string Capitalize(std::string_view text) {
  CheckMapped(text);
  std::string out;
  ForEachPoint(text, [&](std::size_t at, CodePoint c) {
    if (at == 0) {
      AppendTitle(c.value, out);
    } else {
      AppendLower(text, at, c, out);
    }
  });
  return out;
}

std::string Title(std::string_view text) {
  CheckMapped(text);
  std::string out;
  bool inside = false;
  ForEachPoint(text, [&](std::size_t at, CodePoint c) {
    if (inside) {
      AppendLower(text, at, c, out);
    } else {
      AppendTitle(c.value, out);
    }
    inside = HasCase(c.value);
  });
  return out;
}

std::string SwapCase(std::string_view text) {
  CheckMapped(text);
  std::string out;
  ForEachPoint(text, [&](std::size_t at, CodePoint c) {
    if (HasUpperCase(c.value)) {
      AppendLower(text, at, c, out);
    } else if (HasLowerCase(c.value)) {
      AppendUpper(c.value, out);
    } else {
      out += text.substr(at, c.bytes);
    }
  });
  return out;
}

bool IsUpper(std::string_view text) { return HasOnlyCase(text, HasUpperCase, HasLowerCase); }
bool IsLower(std::string_view text) { return HasOnlyCase(text, HasLowerCase, HasUpperCase); }

std::string_view Strip(std::string_view text, const std::string* characters, Side side) {
  const std::size_t whole = text.size();
  const auto goes = [&](char32_t c) {
    return characters == nullptr ? IsPythonSpace(c) : IsIn(c, *characters);
  };
  while (side != Side::kRight && !text.empty()) {
    const CodePoint c = CodePointAt(text, 0);
    if (!goes(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    const CodePoint c = CodePointBefore(text, text.size());
    if (!goes(c.value)) break;
    text.remove_suffix(c.bytes);
  }
  Spend((whole - text.size()) / 8);
  return text;
}

Parts SplitSpace(std::string_view text, long max_splits) {
  SpendOnText(text.size());
  Parts parts;
  for (text = Strip(text, nullptr, Side::kLeft); !text.empty();
       text = Strip(text, nullptr, Side::kLeft)) {
    if (max_splits >= 0 && std::ssize(parts) == max_splits) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      const CodePoint c = CodePointAt(text, end);
      if (IsPythonSpace(c.value)) break;
      end += c.bytes;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

Parts SplitSpaceRight(std::string_view text, long max_splits) {
  SpendOnText(text.size());
  Parts parts;
  for (text = Strip(text, nullptr, Side::kRight); !text.empty();
       text = Strip(text, nullptr, Side::kRight)) {
    if (max_splits >= 0 && std::ssize(parts) == max_splits) {
      parts.push_back(text);
      break;
    }
    std::size_t begin = text.size();
    while (begin > 0) {
      const CodePoint c = CodePointBefore(text, begin);
      if (IsPythonSpace(c.value)) break;
      begin -= c.bytes;
    }
    parts.push_back(text.substr(begin));
    text.remove_suffix(text.size() - begin);
  }
  std::ranges::reverse(parts);
  return parts;
}

Parts SplitAt(std::string_view text, std::string_view separator, long max_splits) {
  Parts parts;
  while (max_splits < 0 || std::ssize(parts) < max_splits) {
    const std::size_t at = FindFirst(text, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

// Splits the text read from its end.
Parts SplitAtRight(std::string_view text, std::string_view separator, long max_splits) {
  const std::string reversed = Reversed(text);
  Parts parts = SplitAt(reversed, Reversed(separator), max_splits);
  for (std::string_view& part : parts) {
    const auto end = text.size() - static_cast<std::size_t>(part.data() - reversed.data());
    part = text.substr(end - part.size(), part.size());
  }
  std::ranges::reverse(parts);
  return parts;
}

Parts SplitLines(std::string_view text, bool keep_ends) {
  Spend(1 + text.size() / 4);
  Parts lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (!IsLineEnd(c.value)) {
      at += c.bytes;
      continue;
    }
    const std::size_t end = at;
    at += c.value == '\r' && text.substr(at).starts_with("\r\n") ? 2 : c.bytes;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    long max_count) {
  TextBuilder out;
  long count = 0;
  std::size_t at = 0;
  while (max_count < 0 || count < max_count) {
    // An empty `from` stands before every code point, and at the end.
    if (from.empty() && count > 0) {
      if (at == text.size()) break;
      const std::size_t bytes = CodePointAt(text, at).bytes;
      out.Add(text.substr(at, bytes));
      at += bytes;
    }
    const std::size_t found = FindFirst(text, from, at);
    if (found == std::string_view::npos) break;
    out.Add(text.substr(at, found - at));
    out.Add(to);
    at = found + from.size();
    ++count;
  }
  out.Add(text.substr(at));
  return out.Take();
}

std::string Repeat(std::string_view text, long count) {
  TextBuilder out;
  if (count > 0) out.Add(static_cast<std::size_t>(count), text);
  return out.Take();
}

std::string EscapeMarkup(std::string_view text) {
  SpendOnText(text.size());
  TextBuilder out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out.Add("&amp;");
        break;
      case '<':
        out.Add("&lt;");
        break;
      case '>':
        out.Add("&gt;");
        break;
      case '\'':
        out.Add("&#39;");
        break;
      case '"':
        out.Add("&#34;");
        break;
      default:
        out.Add(c);
    }
  }
  return out.Take();
}

}  // namespace spillway::jinja
