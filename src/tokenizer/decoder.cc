#include "src/tokenizer/decoder.h"

#include <charconv>

#include "src/tokenizer/byte_alphabet.h"

namespace spillway {

std::optional<unsigned char> ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return byte;
}

std::string TokenBytes(const Decoder& decoder, std::string_view token) {
  if (decoder.space_between) return std::string(" ").append(token);
  if (decoder.byte_level) return FromByteAlphabet(token).value_or(std::string(token));
  if (decoder.byte_fallback) {
    if (const auto byte = ByteOfToken(token)) return std::string(1, static_cast<char>(*byte));
  }
  return decoder.replace ? ReplaceAll(token, *decoder.replace, MostBytesOf(token))
                         : std::string(token);
}

std::string FirstTokenBytes(const Decoder& decoder, std::string_view token) {
  if (decoder.space_between) return std::string(token);
  if (!decoder.drop_in_first.empty())
    return TokenBytes(decoder, ReplaceAll(token, {decoder.drop_in_first, ""}, MostBytesOf(token)));
  std::string bytes = TokenBytes(decoder, token);
  std::size_t cut = 0;
  for (std::size_t i = 0;
       i < decoder.strip_start && std::string_view(bytes).substr(cut).starts_with(decoder.strip);
       ++i) {
    cut += decoder.strip.size();
  }
  return bytes.substr(cut);
}

}  // namespace spillway
