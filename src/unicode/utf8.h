// UTF-8 as sequences of code points. Plain functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spillway {

struct CodePoint {
  char32_t value;
  std::size_t bytes;
};

// The code point that starts at `text[at]`.
// Requires: valid UTF-8, `at` on a boundary and inside.
inline CodePoint CodePointAt(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3F),
          4};
}

// The code point that ends before `text[end]`. Requires: valid UTF-8, `end` on a boundary and > 0.
inline CodePoint CodePointBefore(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return CodePointAt(text, at);
}

// Requires: a scalar value (no surrogate, at most U+10FFFF).
void AppendCodePoint(char32_t value, std::string& out);

std::u32string CodePoints(std::string_view utf8);

bool IsValidUtf8(std::string_view bytes);

// `bytes` with every maximal ill-formed part replaced by one U+FFFD, as Python's
// bytes.decode(errors="replace") and the Unicode standard (section 3.9, "substitution of maximal
// subparts") have it.
std::string ReplaceInvalidUtf8(std::string_view bytes);

}  // namespace spillway
