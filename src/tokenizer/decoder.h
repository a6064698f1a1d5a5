// Token texts back to bytes: the reference's decoders as one fixed chain of optional steps.
// Thread rule: immutable values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/tokenizer/normalizer.h"  // ReplaceStep

namespace spillway {

// Steps in this order: the whole token from the byte alphabet, else replace, byte fallback, strip.
struct Decoder {
  bool byte_level = false;
  std::optional<ReplaceStep> replace = std::nullopt;
  bool byte_fallback = false;      // "<0x0A>" is the byte
  std::string strip = {};          // one character
  std::size_t strip_start = 0;     // at most so many of it are taken off the front of the text
  bool space_between = false;      // tokens are words of their own: the file names no decoder
  std::string drop_in_first = {};  // taken out of the text's first token everywhere (Metaspace)
};

// The bytes of a token, before anything is taken off the front of the text.
std::string TokenBytes(const Decoder& decoder, std::string_view token);

// TokenBytes of a token that opens the text.
std::string FirstTokenBytes(const Decoder& decoder, std::string_view token);

// The byte that "<0x0A>" names, nullopt for any other text. Both cases of digits count.
std::optional<unsigned char> ByteOfToken(std::string_view token);

}  // namespace spillway
