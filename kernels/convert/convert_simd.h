// The body of Convert and FindNonFinite, compiled once per instruction set.
#pragma once

#include "kernels/convert/convert_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr float kInfinity = __builtin_inff();

// The magnitude from which rounding to kOut gives infinity.
template <DType kOut>
constexpr float kOverflow = kOut == DType::kF16 ? 65520.0F : 0x1.FFp127F;

template <DType kIn, DType kOut>
int64_t ConvertRun(const void* in, void* out, int64_t count) {
  int64_t num_overflows = 0;
  int64_t i = 0;
  for (; i + Simd::kLanes <= count; i += Simd::kLanes) {
    const Simd::F v = LoadAs<kIn>(in, i);
    StoreAs<kOut>(out, i, v);
    if constexpr (kOut != DType::kF32)
      num_overflows += Simd::CountIn(Simd::Abs(v), kOverflow<kOut>, kInfinity);
  }
  if (i < count) {
    const Simd::F v = LoadPartAs<kIn>(in, i, count - i);
    StorePartAs<kOut>(out, i, v, count - i);
    if constexpr (kOut != DType::kF32)
      num_overflows += Simd::CountIn(Simd::Abs(v), kOverflow<kOut>, kInfinity);
  }
  return num_overflows;
}

template <DType kIn>
int64_t ConvertFrom(const void* in, void* out, DType out_dtype, int64_t count) {
  switch (out_dtype) {
    case DType::kF32:
      return ConvertRun<kIn, DType::kF32>(in, out, count);
    case DType::kF16:
      return ConvertRun<kIn, DType::kF16>(in, out, count);
    case DType::kBF16:
      return ConvertRun<kIn, DType::kBF16>(in, out, count);
    default:
      break;  // quantise.h
  }
  return 0;
}

inline int64_t ConvertSimd(const ConvertTask& task) {
  switch (task.in_dtype) {
    case DType::kF32:
      return ConvertFrom<DType::kF32>(task.in, task.out, task.out_dtype, task.count);
    case DType::kF16:
      return ConvertFrom<DType::kF16>(task.in, task.out, task.out_dtype, task.count);
    case DType::kBF16:
      return ConvertFrom<DType::kBF16>(task.in, task.out, task.out_dtype, task.count);
    default:
      break;  // quantise.h
  }
  return 0;
}

// Searches element by element only within the first run of 4096 that holds a hit; the test for one
// vectorises.
template <typename T>
int64_t FindExponent(const void* data, int64_t count, T exponent) {
  constexpr int64_t kRun = 4096;
  const T* values = static_cast<const T*>(data);
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t end = MinOf(count, begin + kRun);
    T hits = 0;
    for (int64_t i = begin; i < end; ++i) {
      hits = static_cast<T>(hits | static_cast<T>((values[i] & exponent) == exponent ? 1 : 0));
    }
    if (hits == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if ((values[i] & exponent) == exponent) return i;
    }
  }
  return -1;
}

inline int64_t FindNonFiniteSimd(const void* data, DType dtype, int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return FindExponent<uint32_t>(data, count, 0x7F800000U);
    case DType::kF16:
      return FindExponent<uint16_t>(data, count, 0x7C00U);
    case DType::kBF16:
      return FindExponent<uint16_t>(data, count, 0x7F80U);
    default:
      break;  // quantise.h
  }
  return -1;
}

// y = table row (+ y)
template <DType kIn>
void AddRun(const void* in, float* y, int64_t count) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= count; i += Simd::kLanes) {
    Simd::Store(y + i, Simd::Add(Simd::Load(y + i), LoadAs<kIn>(in, i)));
  }
  if (i < count) {
    const int64_t n = count - i;
    Simd::StorePart(y + i, Simd::Add(Simd::LoadPart(y + i, n), LoadPartAs<kIn>(in, i, n)), n);
  }
}

inline void AddToFloatSimd(const void* in, DType dtype, float* y, int64_t count) {
  dtype == DType::kF16 ? AddRun<DType::kF16>(in, y, count) : AddRun<DType::kBF16>(in, y, count);
}

inline void ScaleSimd(float* y, int64_t count, float factor) {
  const Simd::F by = Simd::Set(factor);
  for (int64_t i = 0; i < count; i += Simd::kLanes) {
    const int64_t n = MinOf(count - i, Simd::kLanes);
    Simd::StorePart(y + i, Simd::Mul(Simd::LoadPart(y + i, n), by), n);
  }
}

// Element i of the run is number first + i of the sequence. 24 random bits in [-1, 1), times scale.
inline void FillRunSimd(uint32_t key, uint32_t first, float scale, float* out, int64_t count) {
  const float unit = scale * 0x1p-23F;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = (first + static_cast<uint32_t>(i)) * 0x9E3779B9U + key;
    h = (h ^ (h >> 16)) * 0x21F0AAADU;
    h = (h ^ (h >> 15)) * 0xD35A2D97U;
    h ^= h >> 15;
    out[i] = static_cast<float>(static_cast<int32_t>(h) >> 8) * unit;
  }
}

}  // namespace
}  // namespace spillway::kernels
