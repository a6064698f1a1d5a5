// Groups of quantised weights <-> floats and halfs, compiled once per instruction set. See
// quantise.h.
#pragma once

#include "kernels/convert/quantise.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// Eight words of a group, one lane each; two registers where they have four.
using Words = uint32_t __attribute__((vector_size(32)));

template <DType kType>
void PackCodes(const int32_t* in, std::byte* codes) {
  if constexpr (kType == DType::kQ8) {
    unsigned char* bytes = reinterpret_cast<unsigned char*>(codes);
    for (int64_t k = 0; k < kGroupWeights; ++k) bytes[k] = static_cast<unsigned char>(in[k]);
  } else {
    Words words = {};
#pragma GCC unroll 8
    for (uint32_t nibble = 0; nibble < 8; ++nibble) {
      Words part;
      __builtin_memcpy(&part, in + kNibbleBegin[nibble], sizeof(part));
      words |= part << (4 * nibble);
    }
    __builtin_memcpy(codes, &words, sizeof(words));
  }
}

constexpr int kGroupVectors = kGroupWeights / Simd::kLanes;

// All 64 weights of a group, in order of k.
template <DType kType>
void LoadGroup(const std::byte* group, Simd::F (&out)[kGroupVectors]) {
  const auto [minimum, step] = Simd::SetHalfs(group);  // of kMxfp4 two scales
  const std::byte* codes = group + kGroupHeadBytes;
  if constexpr (kType == DType::kQ4) {
    Simd::DequantiseGroup(codes, minimum, step, out);
  } else if constexpr (kType == DType::kMxfp4) {
    Simd::LookUpGroup(codes, minimum, step, out);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kGroupVectors; ++i)
      out[i] = Simd::Fma(Simd::LoadBytes(codes + i * Simd::kLanes), step, minimum);
  }
}

template <DType kType>
void DequantiseGroup(const std::byte* group, float* out) {
  Simd::F weights[kGroupVectors];
  LoadGroup<kType>(group, weights);
#pragma GCC unroll 16
  for (int i = 0; i < kGroupVectors; ++i) Simd::Store(out + i * Simd::kLanes, weights[i]);
}

// `count` weights from the begin of a group.
template <DType kType>
void DequantiseRun(const std::byte* groups, float* out, int64_t count) {
  int64_t k = 0;
  for (; k + kGroupWeights <= count; k += kGroupWeights, groups += GroupBytes(kType)) {
    DequantiseGroup<kType>(groups, out + k);
  }
  if (k == count) return;
  float rest[kGroupWeights];
  DequantiseGroup<kType>(groups, rest);
  __builtin_memcpy(out + k, rest, static_cast<size_t>(count - k) * sizeof(float));
}

inline void DequantiseSimd(const std::byte* row, DType dtype, float* out, int64_t count) {
  if (dtype == DType::kQ8) return DequantiseRun<DType::kQ8>(row, out, count);
  if (dtype == DType::kQ4) return DequantiseRun<DType::kQ4>(row, out, count);
  DequantiseRun<DType::kMxfp4>(row, out, count);
}

struct Extremes {
  float low;
  float high;
};

inline Extremes ExtremesOf(const float* weights) {
  Simd::F low = Simd::Load(weights);
  Simd::F high = low;
  for (int64_t k = Simd::kLanes; k < kGroupWeights; k += Simd::kLanes) {
    low = Simd::Min(low, Simd::Load(weights + k));
    high = Simd::Max(high, Simd::Load(weights + k));
  }
  // Adding 0 turns -0 into 0: which of the two is the extreme depends on the lanes.
  return {0.0F - Simd::MaxOf(Simd::Sub(Simd::Zero(), low)), Simd::MaxOf(high) + 0.0F};
}

inline float FromHalf(uint16_t half) {
  float floats[Simd::kLanes];
  Simd::Store(floats, Simd::LoadHalfPart(&half, 1));
  return floats[0];
}

// The step as an fp16: the least that reaches the highest weight.
inline uint16_t StepOf(const Extremes& extremes, float max_code) {
  const float step = (extremes.high - extremes.low) / max_code;
  uint16_t half;
  Simd::StoreHalfPart(&half, Simd::Set(step), 1);
  if (FromHalf(half) < step) ++half;
  return half;
}

// `count` weights, at most 64.
template <DType kType>
void QuantiseGroup(const uint16_t* halfs, int64_t count, std::byte* group) {
  // The last weight fills up a shorter group, which changes no range.
  uint16_t whole[kGroupWeights];
  for (int64_t k = 0; k < kGroupWeights; ++k) whole[k] = halfs[MinOf(k, count - 1)];
  float weights[kGroupWeights];
  for (int64_t k = 0; k < kGroupWeights; k += Simd::kLanes) {
    Simd::Store(weights + k, Simd::LoadHalf(whole + k));
  }
  const Extremes extremes = ExtremesOf(weights);
  constexpr float kMax = MaxCode(kType);
  const uint16_t step_half = StepOf(extremes, kMax);
  const float step = FromHalf(step_half);
  const Simd::F inverse = Simd::Set(step > 0.0F ? 1.0F / step : 0.0F);
  for (int64_t k = 0; k < kGroupWeights; k += Simd::kLanes) {
    const Simd::F above = Simd::Sub(Simd::Load(weights + k), Simd::Set(extremes.low));
    const Simd::F code = Simd::Round(Simd::Mul(above, inverse));
    Simd::Store(weights + k, Simd::Min(code, Simd::Set(kMax)));
  }
  int32_t codes[kGroupWeights];
  for (int64_t k = 0; k < kGroupWeights; ++k) {
    codes[k] = k < count ? static_cast<int32_t>(weights[k]) : 0;
  }
  uint16_t minimum_half;
  Simd::StoreHalfPart(&minimum_half, Simd::Set(extremes.low), 1);
  __builtin_memcpy(group, &minimum_half, sizeof(minimum_half));
  __builtin_memcpy(group + sizeof(minimum_half), &step_half, sizeof(step_half));
  PackCodes<kType>(codes, group + kGroupHeadBytes);
}

inline float FromBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// A power of two, as a float.
inline float PowerOfTwo(int exponent) {
  return FromBits(static_cast<uint32_t>(exponent + 127) << 23);
}

// Codes of 32 weights; returns their scale, 0 where all are 0.
inline float QuantiseScaled(const float* weights, int32_t* codes) {
  Simd::F largest = Simd::Zero();
  for (int64_t k = 0; k < kScaledWeights; k += Simd::kLanes)
    largest = Simd::Max(largest, Simd::Abs(Simd::Load(weights + k)));
  const float most = Simd::MaxOf(largest);
  uint32_t most_bits;
  __builtin_memcpy(&most_bits, &most, sizeof(most));
  // The largest is from 4 to under 8 times the scale.
  const int exponent = static_cast<int>(most_bits >> 23) - 127 - 2;
  const int of_scale = exponent < kLeastScaleExponent ? kLeastScaleExponent : exponent;
  const float inverse = most > 0.0F ? PowerOfTwo(-of_scale) : 0.0F;
  for (int64_t k = 0; k < kScaledWeights; ++k) {
    uint32_t bits;
    __builtin_memcpy(&bits, weights + k, sizeof(bits));
    const float size = FromBits(bits & 0x7FFFFFFFU) * inverse;
    // Half way between two numbers the even code is taken.
    const int32_t code = (size > 0.25F) + (size >= 0.75F) + (size > 1.25F) + (size >= 1.75F) +
                         (size > 2.5F) + (size >= 3.5F) + (size > 5.0F);
    codes[k] = code | static_cast<int32_t>(bits >> 31 << 3);
  }
  return most > 0.0F ? PowerOfTwo(of_scale) : 0.0F;
}

// `count` weights, at most 64.
template <>
inline void QuantiseGroup<DType::kMxfp4>(const uint16_t* halfs, int64_t count, std::byte* group) {
  uint16_t whole[kGroupWeights] = {};
  __builtin_memcpy(whole, halfs, static_cast<size_t>(count) * sizeof(uint16_t));
  float weights[kGroupWeights];
  for (int64_t k = 0; k < kGroupWeights; k += Simd::kLanes)
    Simd::Store(weights + k, Simd::LoadHalf(whole + k));
  int32_t codes[kGroupWeights];
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t begin = half * kScaledWeights;
    const float scale = QuantiseScaled(weights + begin, codes + begin);
    Simd::StoreHalfPart(reinterpret_cast<uint16_t*>(group) + half, Simd::Set(scale), 1);
  }
  PackCodes<DType::kMxfp4>(codes, group + kGroupHeadBytes);
}

template <DType kType>
void QuantiseRun(const uint16_t* halfs, int64_t count, std::byte* row) {
  for (int64_t k = 0; k < count; k += kGroupWeights, row += GroupBytes(kType)) {
    QuantiseGroup<kType>(halfs + k, MinOf(kGroupWeights, count - k), row);
  }
}

inline void QuantiseSimd(const uint16_t* halfs, int64_t count, DType dtype, std::byte* row) {
  if (dtype == DType::kQ8) return QuantiseRun<DType::kQ8>(halfs, count, row);
  if (dtype == DType::kQ4) return QuantiseRun<DType::kQ4>(halfs, count, row);
  QuantiseRun<DType::kMxfp4>(halfs, count, row);
}

}  // namespace
}  // namespace spillway::kernels
