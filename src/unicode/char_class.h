// Character classes exactly as the reference's engines see them
// (tests/tokenizer/make_unicode_tables.py asks them about every code point). Plain functions; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

bool IsLetter(char32_t c);       // \p{L} of a pre-tokenizer's pattern
bool IsNumber(char32_t c);       // \p{N} of a pre-tokenizer's pattern
bool IsSpace(char32_t c);        // \s of a pre-tokenizer's pattern
bool IsDigitsChar(char32_t c);   // what the Digits pre-tokenizer isolates
bool IsWordChar(char32_t c);     // what an added token with single_word may not touch
bool IsStripChar(char32_t c);    // what an added token with lstrip or rstrip takes along
bool IsPunctuation(char32_t c);  // what the Punctuation pre-tokenizer isolates
bool IsAccent(char32_t c);       // what the StripAccents normalizer takes away

// Characters that the reference's normalisation forms do not know yet: marks and parts of
// composites, and what the forms KC and KD take apart.
bool IsNewerChar(char32_t c);
bool IsNewerCompatibleChar(char32_t c);

// General categories of a pattern's \p{...}, as a set of bits.
using CategorySet = uint32_t;

CategorySet CategoryOf(char32_t c);  // one bit

// The categories of "L" or "Lu"; nullopt for any other name.
std::optional<CategorySet> CategoriesNamed(std::string_view name);

// Each character by itself, as the Lowercase normalizer has it. Requires: valid UTF-8.
std::string ToLowerCase(std::string_view utf8);

}  // namespace spillway
