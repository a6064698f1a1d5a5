#include "src/tokenizer/byte_alphabet.h"

#include <array>

#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr std::size_t kNumChars = 0x144;  // the last character is U+0143

struct Alphabet {
  std::array<std::string, 256> char_of_byte;
  std::array<int, kNumChars> byte_of_char;
};

bool IsPrintableLatin1(char32_t c) {
  return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c != 0xAD && c <= 0xFF);
}

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of_char.fill(-1);
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const char32_t c = IsPrintableLatin1(byte) ? byte : next++;
    AppendCodePoint(c, alphabet.char_of_byte[byte]);
    alphabet.byte_of_char[c] = static_cast<int>(byte);
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

void AppendInByteAlphabet(std::string_view bytes, std::string& out) {
  const Alphabet& alphabet = TheAlphabet();
  for (const char byte : bytes) out += alphabet.char_of_byte[static_cast<unsigned char>(byte)];
}

std::optional<std::string> FromByteAlphabet(std::string_view text) {
  const Alphabet& alphabet = TheAlphabet();
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    const int byte = point.value < kNumChars ? alphabet.byte_of_char[point.value] : -1;
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    at += point.bytes;
  }
  return out;
}

}  // namespace spillway
