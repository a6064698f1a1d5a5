#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/convert/convert.h"
#include "kernels/convert/partial_sums.h"
#include "kernels/kv/kv_code.h"
#include "kernels/kv/kv_range.h"

namespace spillway::kernels {
namespace {

// Compiled for any machine.
struct AnyHalves {
  static float OfHalf(uint16_t half) { return HalfToFloat(half); }
  static uint16_t HalfOf(float value) { return FloatToHalf(value); }
};
using Ranges = KvRanges<AnyHalves>;

}  // namespace

KvRange KvRangeOf(float lowest, float highest, int bits) {
  return Ranges::Of(lowest, highest, bits);
}

float KvSum(const float* x, int64_t size) {
  float sums[kPartialSums] = {};
  int64_t begin = 0;
  for (; begin + kPartialSums <= size; begin += kPartialSums) {
    for (int64_t i = 0; i < kPartialSums; ++i) sums[i] += x[begin + i];
  }
  for (int64_t i = 0; begin + i < size; ++i) sums[i] += x[begin + i];
  return TotalOf(sums);
}

uint16_t KvMovedMin(const KvRange& range, float sum, int64_t sum_of_codes, int64_t size) {
  return Ranges::MovedMin(range, sum, sum_of_codes, size);
}

float KvErrorBound(float lowest, float highest, int bits) {
  const KvRange range = KvRangeOf(lowest, highest, bits);
  const float largest = std::max(std::abs(lowest), std::abs(highest));
  // Rounding to a code and moving min are half a step each, a scale together. Besides, the
  // difference, the quotient and the sum are rounded, and elements beyond 65504 are clamped.
  const float rounding = 4.0F * largest * std::numeric_limits<float>::epsilon();
  return HalfToFloat(range.scale) + rounding + std::max(0.0F, largest - Ranges::kLargestHalf);
}

}  // namespace spillway::kernels
