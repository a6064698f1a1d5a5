// Character classes and the canonical composition of text, exactly as the reference's engines see
// them (tests/tokenizer/make_unicode_tables.py asks them about every code point). Plain functions;
// any thread.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

bool IsLetter(char32_t c);      // \p{L} of a pre-tokenizer's pattern
bool IsNumber(char32_t c);      // \p{N} of a pre-tokenizer's pattern
bool IsSpace(char32_t c);       // \s of a pre-tokenizer's pattern
bool IsDigitsChar(char32_t c);  // what the Digits pre-tokenizer isolates
bool IsWordChar(char32_t c);    // what an added token with single_word may not touch
bool IsStripChar(char32_t c);   // what an added token with lstrip or rstrip takes along

// Normalisation form C of Unicode 9.0, the reference's version. Linear but for the stable ordering
// of a run of marks. Requires: valid UTF-8.
std::string ComposeNfc(std::string_view utf8);

}  // namespace spillway
