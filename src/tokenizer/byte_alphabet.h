// The 256 characters that byte-level vocabularies write bytes with: printable Latin-1 stands for
// itself, every other byte for the next character from U+0100 on. Plain functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// One character for each byte, appended.
void AppendInByteAlphabet(std::string_view bytes, std::string& out);

// The bytes that `text` spells, nullopt when a character is none of the 256. Requires: valid UTF-8.
std::optional<std::string> FromByteAlphabet(std::string_view text);

}  // namespace spillway
