// Counter-based random weights: element i depends on seed and i only, so any slice can be made by
// any thread. The same bits on every machine and instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/dtype.h"

namespace spillway::kernels {

// Fills `out` with elements [first_element, first_element + count) of the sequence `seed`: uniform
// in [-scale, scale).
void FillUniform(std::span<std::byte> out, DType dtype, uint64_t seed, uint64_t first_element,
                 float scale);

}  // namespace spillway::kernels
