// fp16 as kernels use it.
#pragma once

#include "cuda_runtime.h"
#include "kernels/convert/convert.h"

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half value) { return spillway::kernels::HalfToFloat(value.bits); }
inline __half __float2half_rn(float value) { return {spillway::kernels::FloatToHalf(value)}; }
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }

// The neighbour below or above where rounding went the other way. Requires: a finite result.
inline __half __float2half_rd(float value) {
  const uint16_t half = __float2half_rn(value).bits;
  if (!(__half2float({half}) > value)) return {half};
  if (half == 0) return {0x8001};
  return {static_cast<uint16_t>((half & 0x8000U) != 0 ? half + 1 : half - 1)};
}
inline __half __float2half_ru(float value) {
  const uint16_t half = __float2half_rd(-value).bits;
  return {static_cast<uint16_t>(half ^ 0x8000U)};
}

inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

// One rounding from the exact result: doubles hold products and sums of halfs exactly, but for sums
// of parts more than 2^42 apart.
inline __half __half_of_exact(double value) {
  // To odd in fp32 first, so that the second rounding sees what the first left out.
  auto single = static_cast<float>(value);
  if (static_cast<double>(single) != value) {
    auto bits = __float_as_uint(single);
    if ((bits & 1U) == 0) bits += (static_cast<double>(single) < value) == (value > 0) ? 1U : ~0U;
    single = __uint_as_float(bits);
  }
  return __float2half_rn(single);
}
inline __half2 __hsub2(__half2 a, __half2 b) {
  const auto sub = [](__half x, __half y) {
    return __half_of_exact(static_cast<double>(__half2float(x)) -
                           static_cast<double>(__half2float(y)));
  };
  return {sub(a.x, b.x), sub(a.y, b.y)};
}
inline __half2 __hmul2(__half2 a, __half2 b) {
  const auto mul = [](__half x, __half y) {
    return __half_of_exact(static_cast<double>(__half2float(x)) *
                           static_cast<double>(__half2float(y)));
  };
  return {mul(a.x, b.x), mul(a.y, b.y)};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  const auto fma = [](__half x, __half y, __half z) {
    return __half_of_exact(static_cast<double>(__half2float(x)) *
                               static_cast<double>(__half2float(y)) +
                           static_cast<double>(__half2float(z)));
  };
  return {fma(a.x, b.x, c.x), fma(a.y, b.y, c.y)};
}
inline __half2 __half2half2(__half value) { return {value, value}; }
inline __half2 __low2half2(__half2 pair) { return {pair.x, pair.x}; }
inline __half2 __high2half2(__half2 pair) { return {pair.y, pair.y}; }
inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline __half2 __float2half2_rn(float value) { return __half2half2(__float2half_rn(value)); }
