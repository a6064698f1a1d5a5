// Simd: one register of floats of the instruction set that this translation unit is compiled for.
// Private to the kernels. Included by files that are compiled for one instruction set only (the
// <op>_avx512.cc, _avx2.cc and _portable.cc, and those of AMX, VNNI and bf16), each with its own
// flags, so everything here and in the <op>_simd.h bodies has internal linkage: a shared inline
// function compiled with AVX-512 could otherwise be picked by the linker for all. For the same
// reason the bodies use no std:: templates.
#pragma once

#include <cstdint>

#include "spillway/dtype.h"
#include "spillway/model.h"  // Activation

#if defined(__AVX512F__)
#include "kernels/simd/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/simd/simd_avx2.h"
#else
#include "kernels/simd/simd_portable.h"
#endif

namespace spillway::kernels {
namespace {

// exp(x), under 2 ulp for x in [-87, 88]; 0 (or a value below 2e-38) under that, NaN for NaN.
inline Simd::F Exp(Simd::F x) {
  const Simd::F clamped = Simd::Min(Simd::Set(88.37F), Simd::Max(Simd::Set(-87.33F), x));
  const Simd::F n = Simd::Round(Simd::Mul(clamped, Simd::Set(1.44269504F)));
  // ln 2 in two parts, the first with enough zero bits at its end for n * part to be exact.
  Simd::F r = Simd::Fma(n, Simd::Set(-0.693359375F), clamped);
  r = Simd::Fma(n, Simd::Set(2.12194440e-4F), r);
  Simd::F p = Simd::Set(1.9875691500e-4F);  // Cephes expf on [-ln2/2, ln2/2]
  p = Simd::Fma(p, r, Simd::Set(1.3981999507e-3F));
  p = Simd::Fma(p, r, Simd::Set(8.3334519073e-3F));
  p = Simd::Fma(p, r, Simd::Set(4.1665795894e-2F));
  p = Simd::Fma(p, r, Simd::Set(1.6666665459e-1F));
  p = Simd::Fma(p, r, Simd::Set(5.0000001201e-1F));
  p = Simd::Fma(Simd::Mul(r, r), p, Simd::Add(r, Simd::Set(1.0F)));
  return Simd::SelectLess(x, Simd::Set(-87.33F), Simd::Zero(), Simd::Scale(p, n));
}

// x Phi(x), Phi by the erfc fit of Numerical Recipes (fractional error 1.2e-7 everywhere).
inline Simd::F Gelu(Simd::F x) {
  const Simd::F one = Simd::Set(1.0F);
  const Simd::F z = Simd::Mul(Simd::Abs(x), Simd::Set(0.707106781F));
  const Simd::F t = Simd::Div(one, Simd::Fma(Simd::Set(0.5F), z, one));
  constexpr float kCoefficients[] = {-0.82215223F, 1.48851587F,  -1.13520398F,
                                     0.27886807F,  -0.18628806F, 0.09678418F,
                                     0.37409196F,  1.00002368F,  -1.26551223F};
  Simd::F p = Simd::Set(0.17087277F);
  for (const float coefficient : kCoefficients) p = Simd::Fma(p, t, Simd::Set(coefficient));
  const Simd::F erfc = Simd::Mul(t, Exp(Simd::Fma(Simd::Sub(Simd::Zero(), z), z, p)));
  const Simd::F tail = Simd::Mul(Simd::Set(0.5F), erfc);  // Phi(-|x|)
  return Simd::Mul(x, Simd::SelectLess(x, Simd::Zero(), tail, Simd::Sub(one, tail)));
}

// x sigmoid(of). exp(-|of|) never overflows, so that far below zero the result is zero, not what
// the clamp of Exp makes of it.
inline Simd::F TimesSigmoid(Simd::F x, Simd::F of) {
  const Simd::F one = Simd::Set(1.0F);
  const Simd::F e = Exp(Simd::Sub(Simd::Zero(), Simd::Abs(of)));
  const Simd::F share = Simd::SelectLess(of, Simd::Zero(), e, one);
  return Simd::Div(Simd::Mul(x, share), Simd::Add(one, e));
}

// x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form.
inline Simd::F GeluTanh(Simd::F x) {
  const Simd::F cubed = Simd::Mul(Simd::Mul(x, x), x);
  const Simd::F inner = Simd::Fma(Simd::Set(0.044715F), cubed, x);
  return TimesSigmoid(x, Simd::Mul(Simd::Set(2.0F * 0.797884561F), inner));
}

// tanh(x), under 3 ulp: by a polynomial where 1 - 2 / (exp(2|x|) + 1) would cancel.
inline Simd::F Tanh(Simd::F x) {
  const Simd::F one = Simd::Set(1.0F);
  const Simd::F square = Simd::Mul(x, x);
  Simd::F p = Simd::Set(-5.70498872745e-3F);  // Cephes tanhf on [-0.625, 0.625]
  p = Simd::Fma(p, square, Simd::Set(2.06390887954e-2F));
  p = Simd::Fma(p, square, Simd::Set(-5.37397155531e-2F));
  p = Simd::Fma(p, square, Simd::Set(1.33314422036e-1F));
  p = Simd::Fma(p, square, Simd::Set(-3.33332819422e-1F));
  const Simd::F near = Simd::Fma(Simd::Mul(p, square), x, x);
  const Simd::F size = Simd::Abs(x);
  const Simd::F e = Exp(Simd::Add(size, size));
  const Simd::F far = Simd::Sub(one, Simd::Div(Simd::Set(2.0F), Simd::Add(e, one)));
  const Simd::F signed_far = Simd::SelectLess(x, Simd::Zero(), Simd::Sub(Simd::Zero(), far), far);
  return Simd::SelectLess(size, Simd::Set(0.625F), near, signed_far);
}

// cap * tanh(x / cap); cap 0: x.
inline Simd::F SoftCapped(Simd::F x, float cap) {
  if (cap == 0.0F) return x;
  const Simd::F most = Simd::Set(cap);
  return Simd::Mul(most, Tanh(Simd::Div(x, most)));
}

// Minima and maxima keep a NaN that comes second.
inline Simd::F ClampedSwish(Simd::F x) {
  const Simd::F gate = Simd::Min(Simd::Set(kClampLimit), x);
  return TimesSigmoid(gate, Simd::Mul(Simd::Set(kSwishSlope), gate));
}
inline Simd::F ClampedOffset(Simd::F x) {
  const Simd::F below = Simd::Min(Simd::Set(kClampLimit), x);
  return Simd::Add(Simd::Max(Simd::Set(-kClampLimit), below), Simd::Set(1.0F));
}

inline Simd::F Activate(Simd::F x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return Simd::Max(Simd::Zero(), x);  // keeps a NaN
    case Activation::kGelu:
      return Gelu(x);
    case Activation::kGeluTanh:
      return GeluTanh(x);
    case Activation::kSilu:
      return TimesSigmoid(x, x);
    case Activation::kClampedSwish:
      return ClampedSwish(x);
    case Activation::kClampedOffset:
      return ClampedOffset(x);
  }
  return x;
}

template <DType kType>
Simd::F LoadAs(const void* base, int64_t index) {
  if constexpr (kType == DType::kF32) return Simd::Load(static_cast<const float*>(base) + index);
  if constexpr (kType == DType::kF16)
    return Simd::LoadHalf(static_cast<const uint16_t*>(base) + index);
  if constexpr (kType == DType::kBF16)
    return Simd::LoadBf16(static_cast<const uint16_t*>(base) + index);
}

// Two registers of 16-bit elements, which lie side by side.
template <DType kType>
Simd::Pair LoadPairAs(const void* base, int64_t index) {
  const auto* from = static_cast<const uint16_t*>(base) + index;
  return kType == DType::kF16 ? Simd::LoadHalfPair(from) : Simd::LoadBf16Pair(from);
}

// The first n lanes; zeros behind them, whose memory is not touched.
template <DType kType>
Simd::F LoadPartAs(const void* base, int64_t index, int64_t n) {
  if constexpr (kType == DType::kF32)
    return Simd::LoadPart(static_cast<const float*>(base) + index, n);
  if constexpr (kType == DType::kF16)
    return Simd::LoadHalfPart(static_cast<const uint16_t*>(base) + index, n);
  if constexpr (kType == DType::kBF16)
    return Simd::LoadBf16Part(static_cast<const uint16_t*>(base) + index, n);
}

template <DType kType>
void StoreAs(void* base, int64_t index, Simd::F v) {
  if constexpr (kType == DType::kF32) Simd::Store(static_cast<float*>(base) + index, v);
  if constexpr (kType == DType::kF16) Simd::StoreHalf(static_cast<uint16_t*>(base) + index, v);
  if constexpr (kType == DType::kBF16) Simd::StoreBf16(static_cast<uint16_t*>(base) + index, v);
}

template <DType kType>
void StorePartAs(void* base, int64_t index, Simd::F v, int64_t n) {
  if constexpr (kType == DType::kF32) Simd::StorePart(static_cast<float*>(base) + index, v, n);
  if constexpr (kType == DType::kF16)
    Simd::StoreHalfPart(static_cast<uint16_t*>(base) + index, v, n);
  if constexpr (kType == DType::kBF16)
    Simd::StoreBf16Part(static_cast<uint16_t*>(base) + index, v, n);
}

constexpr int64_t MinOf(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t MaxOf(int64_t a, int64_t b) { return a > b ? a : b; }

// Prefetches the lines of `bytes` from `at` into the second-level cache. Always inlined: GCC sees
// no side effect in it and would drop calls.
inline __attribute__((always_inline)) void Fetch(const void* at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(static_cast<const char*>(at) + i, 0, 2);
}

// Prefetches into the first-level cache.
inline __attribute__((always_inline)) void FetchNear(const void* at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(static_cast<const char*>(at) + i, 0, 3);
}

}  // namespace
}  // namespace spillway::kernels
