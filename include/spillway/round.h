// Whole multiples. Any thread.
#pragma once

#include <cstdint>

namespace spillway {

// Requires: value >= 0, divisor > 0.
constexpr int64_t DivideUp(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return DivideUp(value, multiple) * multiple;
}

}  // namespace spillway
