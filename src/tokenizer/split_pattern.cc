#include "src/tokenizer/split_pattern.h"

#include <array>
#include <limits>
#include <utility>

#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::size_t kNoMatch = 0;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

enum class CharClass { kLetter, kNumber, kSpace, kOther, kEnd };

CharClass ClassOf(char32_t c) {
  if (IsLetter(c)) return CharClass::kLetter;
  if (IsNumber(c)) return CharClass::kNumber;
  return IsSpace(c) ? CharClass::kSpace : CharClass::kOther;
}

CharClass ClassAt(std::string_view text, std::size_t at) {
  return at < text.size() ? ClassOf(CodePointAt(text, at).value) : CharClass::kEnd;
}

// The end of the run of `wanted` at `at`, of at most `max_chars` characters.
std::size_t RunEnd(std::string_view text, std::size_t at, CharClass wanted,
                   std::size_t max_chars = kNoLimit) {
  for (std::size_t num_chars = 0; at < text.size() && num_chars < max_chars; ++num_chars) {
    const CodePoint point = CodePointAt(text, at);
    if (ClassOf(point.value) != wanted) break;
    at += point.bytes;
  }
  return at;
}

bool IsLineEnd(char c) { return c == '\r' || c == '\n'; }

// 's|'t|'re|'ve|'m|'ll|'d, or kNoMatch. In any case the long s (U+017F) is an s too.
std::size_t ContractionEnd(std::string_view text, std::size_t at, bool any_case) {
  if (text[at] != '\'' || at + 1 == text.size()) return kNoMatch;
  if (any_case && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
  const auto letter = [&](std::size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  const char second = letter(2);
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? at + 3 : kNoMatch;
}

// \s+(?!\S)|\s+ : the white space at `at`, but its last character when something follows and it is
// not the only one.
std::size_t SpaceMatchEnd(std::string_view text, std::size_t at) {
  const std::size_t end = RunEnd(text, at, CharClass::kSpace);
  if (end == text.size()) return end;
  const std::size_t last = end - CodePointBefore(text, end).bytes;
  return last == at ? end : last;
}

std::size_t Gpt2MatchEnd(std::string_view text, std::size_t at) {
  if (const std::size_t end = ContractionEnd(text, at, false); end != kNoMatch) return end;
  const std::size_t body = text[at] == ' ' ? at + 1 : at;
  const CharClass body_class = ClassAt(text, body);
  if (body_class == CharClass::kSpace || body_class == CharClass::kEnd)
    return SpaceMatchEnd(text, at);
  return RunEnd(text, body, body_class);
}

// \s*[\r\n]+ : up to the last line end of the white space at `at`, or kNoMatch.
std::size_t LineEndsEnd(std::string_view text, std::size_t at) {
  std::size_t end = RunEnd(text, at, CharClass::kSpace);
  while (end > at && !IsLineEnd(text[end - 1])) --end;
  return end == at ? kNoMatch : end;
}

std::size_t Llama3MatchEnd(std::string_view text, std::size_t at, std::size_t max_digits) {
  if (const std::size_t end = ContractionEnd(text, at, true); end != kNoMatch) return end;
  const CodePoint first = CodePointAt(text, at);
  const CharClass first_class = ClassOf(first.value);
  if (first_class == CharClass::kLetter) return RunEnd(text, at, CharClass::kLetter);
  if (first_class == CharClass::kNumber) return RunEnd(text, at, CharClass::kNumber, max_digits);
  if (!IsLineEnd(text[at]) && ClassAt(text, at + first.bytes) == CharClass::kLetter) {
    return RunEnd(text, at + first.bytes, CharClass::kLetter);
  }
  const std::size_t body = text[at] == ' ' ? at + 1 : at;
  if (ClassAt(text, body) == CharClass::kOther) {
    std::size_t end = RunEnd(text, body, CharClass::kOther);
    while (end < text.size() && IsLineEnd(text[end])) ++end;
    return end;
  }
  if (const std::size_t end = LineEndsEnd(text, at); end != kNoMatch) return end;
  return SpaceMatchEnd(text, at);
}

}  // namespace

std::string_view RegexOf(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return kGpt2Regex;
    case SplitPattern::kLlama3:
      return kLlama3Regex;
    case SplitPattern::kQwen2:
      break;
  }
  return kQwen2Regex;
}

std::optional<SplitPattern> FindSplitPattern(std::string_view regex) {
  for (const SplitPattern known :
       {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    if (regex == RegexOf(known)) return known;
  }
  return std::nullopt;
}

std::size_t MatchEnd(SplitPattern pattern, std::string_view text, std::size_t at) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return Gpt2MatchEnd(text, at);
    case SplitPattern::kLlama3:
      return Llama3MatchEnd(text, at, 3);
    case SplitPattern::kQwen2:
      return Llama3MatchEnd(text, at, 1);
  }
  return text.size();
}

}  // namespace spillway
