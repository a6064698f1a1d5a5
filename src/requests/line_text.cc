#include "src/requests/line_text.h"

#include <fmt/format.h>

#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";

std::size_t CharacterBytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Requires: not valid UTF-8.
std::size_t FirstBadByte(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t size = CharacterBytes(text[at]);
    if (!IsValidUtf8(text.substr(at, size))) break;
    at += size;
  }
  return at;
}

// Tells whether these bytes are one character of white space.
bool IsSpaceCharacter(std::string_view character) {
  if (!IsValidUtf8(character)) return false;
  const char32_t c = CodePointAt(character, 0).value;
  return IsSpace(c) || (c >= 0x1C && c <= 0x1F);
}

// Most lines begin and end with one of these, and need no look at classes.
bool IsPrintable(char byte) { return byte > ' ' && byte < '\x7F'; }

// Bytes of white space in front.
std::size_t SpaceInFront(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && !IsPrintable(text[at])) {
    const std::size_t size = CharacterBytes(text[at]);
    if (!IsSpaceCharacter(text.substr(at, size))) break;
    at += size;
  }
  return at;
}

std::string_view WithoutSpaceBehind(std::string_view text) {
  while (!text.empty() && !IsPrintable(text.back())) {
    std::size_t size = 1;
    while (size < text.size() && size < 4 && (text[text.size() - size] & 0xC0) == 0x80) ++size;
    if (!IsSpaceCharacter(text.substr(text.size() - size))) break;
    text.remove_suffix(size);
  }
  return text;
}

}  // namespace

MaybeFault CheckText(std::string_view line) {
  if (IsValidUtf8(line)) return std::nullopt;
  const std::size_t at = FirstBadByte(line);
  return LineFault{
      "invalid_utf8",
      fmt::format("column {}: byte 0x{:02x} is not valid UTF-8; save the file as UTF-8", at + 1,
                  static_cast<unsigned char>(line[at]))};
}

bool IsBlank(std::string_view line) { return SpaceInFront(line) == line.size(); }

std::string_view WithoutOddSpace(std::string_view line) {
  const std::size_t space = SpaceInFront(line);
  if (line.substr(0, space).find_first_not_of(kJsonSpace) != std::string_view::npos)
    line.remove_prefix(space);
  return WithoutSpaceBehind(line);
}

}  // namespace spillway
