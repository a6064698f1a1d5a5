#include "src/base/hash.h"

#include <fmt/format.h>

#ifdef SPILLWAY_XXH_DISPATCH
#include <xxh_x86dispatch.h>  // the same value, with the widest vectors the processor has
#else
#include <xxhash.h>
#endif

namespace spillway {

uint64_t BlockHash(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t TextHash(std::string_view text) {
  return BlockHash(std::as_bytes(std::span(text.data(), text.size())));
}

std::string HashDigits(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace spillway
