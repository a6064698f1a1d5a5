// The draws of sampling, as a pure function: a resumed or reordered run draws the same numbers. Any
// thread.
#pragma once

#include <cstdint>

namespace spillway {

// Draw number `index` of stream (seed, stream). Uniform in [0, 1), 53 bits.
// The first 53 bits of XXH64 over (stream, index), little-endian, seeded with `seed`: a stable
// format, not a secret.
double UniformDraw(uint64_t seed, uint64_t stream, uint64_t index);

}  // namespace spillway
