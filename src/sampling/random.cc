#include "src/sampling/random.h"

#include <xxhash.h>

#include <array>
#include <bit>

namespace spillway {

static_assert(std::endian::native == std::endian::little,
              "the draws are defined over little-endian bytes");

double UniformDraw(uint64_t seed, uint64_t stream, uint64_t index) {
  const std::array<uint64_t, 2> counter = {stream, index};
  const uint64_t bits = XXH64(counter.data(), sizeof(counter), seed);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace spillway
