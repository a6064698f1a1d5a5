#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/convert/convert.h"
#include "kernels/convert/partial_sums.h"
#include "kernels/kv/kv_code.h"

namespace spillway::kernels {
namespace {

constexpr float kLargestHalf = 65504.0F;
constexpr float kRoundsToInfinity = 65520.0F;
constexpr uint16_t kHalfNan = 0x7E00;

// Requires: |x| <= 65504.
uint16_t HalfBelow(float x) {
  const uint16_t half = FloatToHalf(x);
  if (HalfToFloat(half) <= x) return half;
  if (half == 0) return 0x8001;
  return static_cast<uint16_t>((half & 0x8000U) != 0 ? half + 1 : half - 1);
}

// Requires: 0 <= x < 65504.
uint16_t HalfAbove(float x) {
  const uint16_t half = FloatToHalf(x);
  return HalfToFloat(half) >= x ? half : static_cast<uint16_t>(half + 1);
}

}  // namespace

KvRange KvRangeOf(float lowest, float highest, int bits) {
  // Negated, so that a NaN ends here too.
  if (!(lowest > -kRoundsToInfinity && highest < kRoundsToInfinity)) return {kHalfNan, 0};
  lowest = std::max(lowest, -kLargestHalf) + 0.0F;  // one zero, not two
  highest = std::min(highest, kLargestHalf);
  KvRange range;
  range.min = HalfBelow(lowest);
  // Adding 0 here too: a group of zeros may end in -0.
  const float size = highest - HalfToFloat(range.min) + 0.0F;
  range.scale = HalfAbove(size / static_cast<float>(KvSteps(bits)));
  return range;
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
  const double scale = HalfToFloat(range.scale);
  const double min = HalfToFloat(range.min);
  const double wanted = (static_cast<double>(sum) - scale * static_cast<double>(sum_of_codes)) /
                        static_cast<double>(size);
  const uint16_t moved = FloatToHalf(static_cast<float>(wanted));
  const double to = HalfToFloat(moved);
  const bool nearer = std::abs(wanted - to) < std::abs(wanted - min);
  return nearer && std::abs(to - min) <= 0.5 * scale ? moved : range.min;
}

float KvErrorBound(float lowest, float highest, int bits) {
  const KvRange range = KvRangeOf(lowest, highest, bits);
  const float largest = std::max(std::abs(lowest), std::abs(highest));
  // Rounding to a code and moving min are half a step each, a scale together. Besides, the
  // difference, the quotient and the sum are rounded, and elements beyond 65504 are clamped.
  const float rounding = 4.0F * largest * std::numeric_limits<float>::epsilon();
  return HalfToFloat(range.scale) + rounding + std::max(0.0F, largest - kLargestHalf);
}

}  // namespace spillway::kernels
