// Sums side by side, so that a compiler may use registers of them, and their total in one order for
// every compiler's vectors. Pure function; any thread.
#pragma once

#include <cstdint>

namespace spillway::kernels {

inline constexpr int64_t kPartialSums = 16;

// The total; overwrites the sums. Unrolled by force: else they would go through memory.
inline float TotalOf(float (&sums)[kPartialSums]) {
#pragma GCC unroll 4
  for (int64_t half = kPartialSums / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

}  // namespace spillway::kernels
