#include "src/requests/line_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr std::string_view kReversedMark = "\xEF\xBF\xBE";  // U+FFFE

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

}  // namespace

MaybeFault CheckText(std::string_view line) {
  if (const std::size_t at = line.find('\0'); at != std::string_view::npos) {
    return LineFault{"nul_byte", fmt::format("column {}: a NUL byte", at + 1)};
  }
  if (!IsValidUtf8(line)) {
    const std::size_t at = FirstBadByte(line);
    return LineFault{
        "invalid_utf8",
        fmt::format("column {}: byte 0x{:02x} is not valid UTF-8; save the file as UTF-8", at + 1,
                    static_cast<unsigned char>(line[at]))};
  }
  if (const std::size_t at = line.find(kReversedMark); at != std::string_view::npos) {
    return LineFault{"invalid_utf8", fmt::format("column {}: U+FFFE is no character", at + 1)};
  }
  return std::nullopt;
}

MaybeFault CheckString(std::string_view text) {
  if (text.find('\0') != std::string_view::npos)
    return LineFault{"nul_byte", "a string contains \\u0000"};
  if (text.find(kReversedMark) != std::string_view::npos) {
    return LineFault{"invalid_utf8", "a string contains U+FFFE, which is no character"};
  }
  return std::nullopt;
}

}  // namespace spillway
