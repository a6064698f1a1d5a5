// Element type conversion of contiguous runs; round to nearest even.
#pragma once

#include <bit>
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

// In line, for the software GPU of the tests widens every operand by it.
inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t magnitude = (bits & 0x7FFFU) << 13;
  if (magnitude > 0x0F800000U) return std::bit_cast<float>(sign | magnitude | 0x7FC00000U);
  if (magnitude == 0x0F800000U) return std::bit_cast<float>(sign | 0x7F800000U);
  const float value =
      std::bit_cast<float>(magnitude) * 0x1p112F;  // rebias; normalises denormals too
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

}  // namespace spillway::kernels
