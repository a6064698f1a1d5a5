// Element type conversion of contiguous runs; round to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/dtype.h"

namespace spillway::kernels {

// out = in, element by element. Requires: both spans hold the same number of elements.
// Returns the number of elements that were finite in `in` and are not in `out` (fp16 overflow).
int64_t Convert(std::span<const std::byte> in, DType in_dtype, std::span<std::byte> out,
                DType out_dtype);

// The index of the first NaN or infinity in `data`, -1 when all are finite.
int64_t FindNonFinite(std::span<const std::byte> data, DType dtype);

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

}  // namespace spillway::kernels
