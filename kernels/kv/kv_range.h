// Range of a group of K or V below 16 bits, as kernels/kv/kv_code.h defines it. Compiled once per
// instruction set, with its own conversions of fp16: KvRangeOf and KvMovedMin for the encoders. In
// an unnamed namespace and without std:: templates, for the reason in kernels/simd/simd.h.
#pragma once

#include "kernels/kv/kv_code.h"

namespace spillway::kernels {
namespace {

// Halves: OfHalf(uint16_t) and HalfOf(float), rounding to nearest even.
template <typename Halves>
struct KvRanges {
  static constexpr float kLargestHalf = 65504.0F;
  static constexpr float kRoundsToInfinity = 65520.0F;
  static constexpr uint16_t kHalfNan = 0x7E00;

  // Without branches, as what is rounded goes up as often as down. Requires: |x| <= 65504.
  static uint16_t HalfBelow(float x) {
    const unsigned half = Halves::HalfOf(x);
    const unsigned above = Halves::OfHalf(static_cast<uint16_t>(half)) > x ? 1 : 0;
    const unsigned negative = half >> 15;
    const unsigned below = half == 0 ? 0x8001U : half + 2 * negative - 1;
    return static_cast<uint16_t>(above != 0 ? below : half);
  }

  // Requires: 0 <= x < 65504.
  static uint16_t HalfAbove(float x) {
    const unsigned half = Halves::HalfOf(x);
    const unsigned below = Halves::OfHalf(static_cast<uint16_t>(half)) < x ? 1 : 0;
    return static_cast<uint16_t>(half + below);
  }

  static KvRange Of(float lowest, float highest, int bits) {
    // Negated, so that a NaN ends here too.
    if (!(lowest > -kRoundsToInfinity && highest < kRoundsToInfinity)) return {kHalfNan, 0};
    lowest = (lowest < -kLargestHalf ? -kLargestHalf : lowest) + 0.0F;  // one zero, not two
    highest = highest > kLargestHalf ? kLargestHalf : highest;
    KvRange range;
    range.min = HalfBelow(lowest);
    // Adding 0 here too: a group of zeros may end in -0.
    const float size = highest - Halves::OfHalf(range.min) + 0.0F;
    range.scale = HalfAbove(size / static_cast<float>(KvSteps(bits)));
    return range;
  }

  static uint16_t MovedMin(const KvRange& range, float sum, int64_t sum_of_codes, int64_t size) {
    const double scale = Halves::OfHalf(range.scale);
    const double min = Halves::OfHalf(range.min);
    const double wanted = (static_cast<double>(sum) - scale * static_cast<double>(sum_of_codes)) /
                          static_cast<double>(size);
    const uint16_t moved = Halves::HalfOf(static_cast<float>(wanted));
    const double to = Halves::OfHalf(moved);
    const int nearer = __builtin_fabs(wanted - to) < __builtin_fabs(wanted - min) ? 1 : 0;
    const int is_near = __builtin_fabs(to - min) <= 0.5 * scale ? 1 : 0;
    return (nearer & is_near) != 0 ? moved : range.min;
  }
};

}  // namespace
}  // namespace spillway::kernels
