// Groups of quantised weights <-> floats and halfs, compiled once per instruction set. See
// quantise.h.
#pragma once

#include "kernels/convert/quantise.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// Eight words of a group, one lane each; two registers where they have four.
using Words = uint32_t __attribute__((vector_size(32)));

inline void PackSixes(const int32_t* in, std::byte* codes) {
  Words lows = {};
  Words highs = {};
#pragma GCC unroll 8
  for (uint32_t nibble = 0; nibble < 8; ++nibble) {
    Words part;
    __builtin_memcpy(&part, in + kNibbleBegin[nibble], sizeof(part));
    lows |= (part & 15U) << (4 * nibble);
    highs |= (part >> 4) << (2 * nibble);
  }
  __builtin_memcpy(codes, &lows, sizeof(lows));
  for (int word = 0; word < 8; ++word) {
    const auto half = static_cast<uint16_t>(highs[word]);
    __builtin_memcpy(codes + sizeof(lows) + word * sizeof(half), &half, sizeof(half));
  }
}

template <DType kType>
void PackCodes(const int32_t* in, std::byte* codes) {
  if constexpr (CodeBits(kType) == 6) {
    PackSixes(in, codes);
  } else if constexpr (CodeBits(kType) == 8) {
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

inline float FromBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Minimum and step of a group in all lanes; of kMxfp4 its two scales.
template <DType kType>
inline Simd::Pair LoadHead(const std::byte* group) {
  if constexpr (HasZeroPoint(kType)) {
    uint32_t head;
    __builtin_memcpy(&head, group, sizeof(head));
    const float scale = FromBits(head & ~kZeroMask);
    return {Simd::Set(-static_cast<float>(head & kZeroMask) * scale), Simd::Set(scale)};
  } else {
    return Simd::SetHalfs(group);
  }
}

// Steps and minimums of a group, in all lanes: kCount of each, for as many equal parts of it.
template <int kCount>
struct Steps {
  Simd::F step[kCount];
  Simd::F minimum[kCount];
};

template <DType kType>
inline Steps<2> LoadTwoSteps(const std::byte* group) {
  const auto [first, second] = LoadHead<kType>(group);
  if constexpr (HasTwoMinimums(kType)) {
    const auto [of_first, of_second] = Simd::SetHalfs(group + kMinimumsAt);
    return {{first, second}, {of_first, of_second}};
  } else if constexpr (HasTwoScales(kType)) {
    const Simd::F middle = Simd::Set(-static_cast<float>(MiddleCode(kType)));
    return {{first, second}, {Simd::Mul(middle, first), Simd::Mul(middle, second)}};
  } else {
    return {{second, second}, {first, first}};
  }
}

template <DType kType>
inline auto LoadCodedSteps(const std::byte* group) {
  constexpr int kCount = static_cast<int>(NumCodedScales(kType));
  const auto [of_steps, of_minimums] = Simd::SetHalfs(group);
  const std::byte* scales = group + kCodedScalesAt;
  const Simd::F steps = Simd::Mul(Simd::LoadSigned(scales), of_steps);
  const Simd::F less =
      Simd::Mul(Simd::LoadSigned(scales + kCount), Simd::Sub(Simd::Zero(), of_minimums));
  Steps<kCount> all;
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    all.step[i] = Simd::Lane(steps, i);
    all.minimum[i] = Simd::Lane(less, i);
  }
  return all;
}

// Of types with two steps or more.
template <DType kType>
inline auto LoadSteps(const std::byte* group) {
  if constexpr (HasCodedScales(kType)) {
    return LoadCodedSteps<kType>(group);
  } else {
    return LoadTwoSteps<kType>(group);
  }
}

// All 64 weights of a group, in order of k.
template <DType kType>
void LoadGroup(const std::byte* group, Simd::F (&out)[kGroupVectors]) {
  const std::byte* codes = group + GroupHeadBytes(kType);
  if constexpr (kType == DType::kFp8) {
    float scale;
    __builtin_memcpy(&scale, group, sizeof(scale));
    const Simd::F scale_256 = Simd::Set(scale * 256.0F);  // a float where all weights are
#pragma GCC unroll 16
    for (int i = 0; i < kGroupVectors; ++i)
      out[i] = Simd::Mul(Simd::LoadFp8(codes + i * Simd::kLanes), scale_256);
  } else if constexpr (kType == DType::kMxfp4) {
    const auto [first, second] = LoadHead<kType>(group);
    Simd::LookUpGroup(codes, first, second, out);
  } else {
    const auto steps = LoadSteps<kType>(group);
    constexpr int kParts = sizeof(steps.step) / sizeof(Simd::F);
    if constexpr (CodeBits(kType) == 4)
      return Simd::DequantiseGroup(codes, steps.minimum, steps.step, out);
    if constexpr (CodeBits(kType) == 6) Simd::LoadSixes(codes, out);
#pragma GCC unroll 16
    for (int i = 0; i < kGroupVectors; ++i) {
      const int part = i * kParts / kGroupVectors;
      if constexpr (CodeBits(kType) == 8) out[i] = Simd::LoadBytes(codes + i * Simd::kLanes);
      out[i] = Simd::Fma(out[i], steps.step[part], steps.minimum[part]);
    }
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
  WithQuantised(dtype, [&]<DType kType>() { DequantiseRun<kType>(row, out, count); });
}

struct Extremes {
  float low;
  float high;
};

// Requires, as LargestOf: a count of whole registers.
inline Extremes ExtremesOf(const float* weights, int64_t count) {
  Simd::F low = Simd::Load(weights);
  Simd::F high = low;
  for (int64_t k = Simd::kLanes; k < count; k += Simd::kLanes) {
    low = Simd::Min(low, Simd::Load(weights + k));
    high = Simd::Max(high, Simd::Load(weights + k));
  }
  // Adding 0 turns -0 into 0: which of the two is the extreme depends on the lanes.
  return {0.0F - Simd::MaxOf(Simd::Sub(Simd::Zero(), low)), Simd::MaxOf(high) + 0.0F};
}

inline float LargestOf(const float* weights, int64_t count) {
  Simd::F largest = Simd::Zero();
  for (int64_t k = 0; k < count; k += Simd::kLanes)
    largest = Simd::Max(largest, Simd::Abs(Simd::Load(weights + k)));
  return Simd::MaxOf(largest);
}

inline float FromHalf(uint16_t half) {
  float floats[Simd::kLanes];
  Simd::Store(floats, Simd::LoadHalfPart(&half, 1));
  return floats[0];
}

inline uint16_t ToHalf(float value) {
  uint16_t half;
  Simd::StoreHalfPart(&half, Simd::Set(value), 1);
  return half;
}

// The least fp16 that is no less than a value of 0 or more.
inline uint16_t HalfUp(float value) {
  const uint16_t half = ToHalf(value);
  return static_cast<uint16_t>(half + (FromHalf(half) < value));
}

// The step as an fp16: the least that reaches the highest weight.
inline uint16_t StepOf(const Extremes& extremes, float max_code) {
  return HalfUp((extremes.high - extremes.low) / max_code);
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
  const Extremes extremes = ExtremesOf(weights, kGroupWeights);
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
  const uint16_t minimum_half = ToHalf(extremes.low);
  __builtin_memcpy(group, &minimum_half, sizeof(minimum_half));
  __builtin_memcpy(group + sizeof(minimum_half), &step_half, sizeof(step_half));
  PackCodes<kType>(codes, group + GroupHeadBytes(kType));
}

// A power of two, as a float.
inline float PowerOfTwo(int exponent) {
  return FromBits(static_cast<uint32_t>(exponent + 127) << 23);
}

// Codes of 32 weights; returns their scale, 0 where all are 0.
inline float QuantiseScaled(const float* weights, int32_t* codes) {
  const float most = LargestOf(weights, kScaledWeights);
  // The largest is from 4 to under 8 times the scale.
  const int exponent = static_cast<int>(BitsOf(most) >> 23) - 127 - 2;
  const int of_scale = exponent < kLeastScaleExponent ? kLeastScaleExponent : exponent;
  const float inverse = most > 0.0F ? PowerOfTwo(-of_scale) : 0.0F;
  for (int64_t k = 0; k < kScaledWeights; ++k) {
    const uint32_t bits = BitsOf(weights[k]);
    const float size = FromBits(bits & 0x7FFFFFFFU) * inverse;
    // Half way between two numbers the even code is taken.
    const int32_t code = (size > 0.25F) + (size >= 0.75F) + (size > 1.25F) + (size >= 1.75F) +
                         (size > 2.5F) + (size >= 3.5F) + (size > 5.0F);
    codes[k] = code | static_cast<int32_t>(bits >> 31 << 3);
  }
  return most > 0.0F ? PowerOfTwo(of_scale) : 0.0F;
}

// Weights of a group, up to `count` of them, the others 0.
inline void LoadWeights(const uint16_t* halfs, int64_t count, float (&weights)[kGroupWeights]) {
  uint16_t whole[kGroupWeights] = {};
  __builtin_memcpy(whole, halfs, static_cast<size_t>(count) * sizeof(uint16_t));
  for (int64_t k = 0; k < kGroupWeights; k += Simd::kLanes)
    Simd::Store(weights + k, Simd::LoadHalf(whole + k));
}

// `count` weights, at most 64.
template <>
inline void QuantiseGroup<DType::kMxfp4>(const uint16_t* halfs, int64_t count, std::byte* group) {
  float weights[kGroupWeights];
  LoadWeights(halfs, count, weights);
  int32_t codes[kGroupWeights];
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t begin = half * kScaledWeights;
    const float scale = QuantiseScaled(weights + begin, codes + begin);
    Simd::StoreHalfPart(reinterpret_cast<uint16_t*>(group) + half, Simd::Set(scale), 1);
  }
  PackCodes<DType::kMxfp4>(codes, group + GroupHeadBytes(DType::kMxfp4));
}

// Steps from a zero point.
template <DType kType>
void QuantiseToIntegers(const uint16_t* halfs, int64_t count, std::byte* group) {
  float weights[kGroupWeights];
  LoadWeights(halfs, count, weights);
  const Extremes extremes = ExtremesOf(weights, kGroupWeights);
  const float low = extremes.low < 0.0F ? extremes.low : 0.0F;
  constexpr float kMax = MaxCode(kType);
  const float range = (extremes.high > 0.0F ? extremes.high : 0.0F) - low;
  // The least scale of 24 bits that reaches the highest weight.
  const uint32_t scale_bits = (BitsOf(range / kMax) + kZeroMask) & ~kZeroMask;
  const float inverse = range > 0.0F ? 1.0F / FromBits(scale_bits) : 0.0F;
  const float zero = static_cast<float>(static_cast<int32_t>(0.5F - low * inverse));
  int32_t codes[kGroupWeights];
  for (int64_t k = 0; k < kGroupWeights; ++k) {
    const float code = weights[k] * inverse + zero + 0.5F;
    const float within = code < 0.0F ? 0.0F : code > kMax ? kMax : code;
    codes[k] = k < count ? static_cast<int32_t>(within) : 0;
  }
  const uint32_t head = scale_bits | static_cast<uint32_t>(zero);
  __builtin_memcpy(group, &head, sizeof(head));
  PackCodes<kType>(codes, group + GroupHeadBytes(kType));
}

template <>
inline void QuantiseGroup<DType::kInt8>(const uint16_t* halfs, int64_t count, std::byte* group) {
  QuantiseToIntegers<DType::kInt8>(halfs, count, group);
}
template <>
inline void QuantiseGroup<DType::kInt4>(const uint16_t* halfs, int64_t count, std::byte* group) {
  QuantiseToIntegers<DType::kInt4>(halfs, count, group);
}

// The nearest number of E4M3 to a size of up to 448, of two as near the one with an even code.
inline int32_t Fp8Of(float size) {
  constexpr float kLeastNormal = 0x1p-6F;
  if (size < kLeastNormal) {  // multiples of 2^-9, which adding 2^14 rounds to
    return static_cast<int32_t>(BitsOf(size + 0x1p14F) - BitsOf(0x1p14F));
  }
  const uint32_t bits = BitsOf(size);
  const uint32_t rounded = bits + 0x7FFFFU + ((bits >> 20) & 1U);
  constexpr int32_t kBias = 127 - 7;
  return static_cast<int32_t>(rounded >> 20) - (kBias << 3);
}

template <>
inline void QuantiseGroup<DType::kFp8>(const uint16_t* halfs, int64_t count, std::byte* group) {
  float weights[kGroupWeights];
  LoadWeights(halfs, count, weights);
  const float most = LargestOf(weights, kGroupWeights);
  const float scale = most / kFp8Largest;
  const float inverse = most > 0.0F ? kFp8Largest / most : 0.0F;
  int32_t codes[kGroupWeights];
  for (int64_t k = 0; k < kGroupWeights; ++k) {
    const uint32_t bits = BitsOf(weights[k]);
    const float size = FromBits(bits & 0x7FFFFFFFU) * inverse;
    codes[k] =
        Fp8Of(size < kFp8Largest ? size : kFp8Largest) | static_cast<int32_t>(bits >> 31 << 7);
  }
  __builtin_memcpy(group, &scale, sizeof(scale));
  PackCodes<DType::kFp8>(codes, group + GroupHeadBytes(DType::kFp8));
}

inline int32_t NearestCode(float steps, int32_t most) {
  const auto code = static_cast<int32_t>(steps + (steps < 0.0F ? -0.5F : 0.5F));
  return code < 0 ? 0 : code > most ? most : code;
}

// Steps from the middle code, under a scale for each half.
template <DType kType>
void QuantiseFromMiddle(const uint16_t* halfs, int64_t count, std::byte* group) {
  constexpr auto kMiddle = static_cast<int32_t>(MiddleCode(kType));
  float weights[kGroupWeights];
  LoadWeights(halfs, count, weights);
  int32_t codes[kGroupWeights];
  for (int64_t half = 0; half < 2; ++half) {
    const float* from = weights + half * kScaledWeights;
    const uint16_t scale_half =
        HalfUp(LargestOf(from, kScaledWeights) / static_cast<float>(kMiddle - 1));
    const float scale = FromHalf(scale_half);
    const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
    for (int64_t k = 0; k < kScaledWeights; ++k) {
      codes[half * kScaledWeights + k] =
          NearestCode(from[k] * inverse + static_cast<float>(kMiddle), 2 * kMiddle - 1);
    }
    __builtin_memcpy(group + half * 2, &scale_half, sizeof(scale_half));
  }
  PackCodes<kType>(codes, group + GroupHeadBytes(kType));
}

template <>
inline void QuantiseGroup<DType::kGgufQ8>(const uint16_t* halfs, int64_t count, std::byte* group) {
  QuantiseFromMiddle<DType::kGgufQ8>(halfs, count, group);
}
template <>
inline void QuantiseGroup<DType::kGgufQ4>(const uint16_t* halfs, int64_t count, std::byte* group) {
  QuantiseFromMiddle<DType::kGgufQ4>(halfs, count, group);
}

// Steps from a minimum, of each half.
template <>
inline void QuantiseGroup<DType::kGgufM4>(const uint16_t* halfs, int64_t count, std::byte* group) {
  constexpr auto kMost = static_cast<int32_t>(MaxCode(DType::kGgufM4));
  float weights[kGroupWeights];
  LoadWeights(halfs, count, weights);
  int32_t codes[kGroupWeights];
  for (int64_t half = 0; half < 2; ++half) {
    const float* from = weights + half * kScaledWeights;
    const Extremes extremes = ExtremesOf(from, kScaledWeights);
    const uint16_t scale_half = StepOf(extremes, kMost);
    const float scale = FromHalf(scale_half);
    for (int64_t k = 0; k < kScaledWeights; ++k) {
      codes[half * kScaledWeights + k] =
          scale > 0.0F ? NearestCode((from[k] - extremes.low) / scale, kMost) : 0;
    }
    const uint16_t minimum_half = ToHalf(extremes.low);
    __builtin_memcpy(group + half * 2, &scale_half, sizeof(scale_half));
    __builtin_memcpy(group + kMinimumsAt + half * 2, &minimum_half, sizeof(minimum_half));
  }
  PackCodes<DType::kGgufM4>(codes, group + GroupHeadBytes(DType::kGgufM4));
}

// What is to be coded: as many values of 0 or more as a group has scales.
struct Coded {
  float value[4] = {};
  int32_t code[4] = {};
  uint16_t factor = 0;

  // Codes of up to 63 under one factor.
  void Code(int64_t count) {
    constexpr float kMost = 63.0F;
    float most = 0.0F;
    for (int64_t i = 0; i < count; ++i) most = value[i] > most ? value[i] : most;
    factor = HalfUp(most / kMost);
    const float of_one = FromHalf(factor);
    for (int64_t i = 0; i < count; ++i) {
      code[i] = of_one > 0.0F ? NearestCode(value[i] / of_one, static_cast<int32_t>(kMost)) : 0;
      if (value[i] > 0.0F && code[i] == 0) code[i] = 1;
      value[i] = of_one * static_cast<float>(code[i]);
    }
  }
};

// Steps from minimums of 0 or less, of each 32 or 16.
template <DType kType>
void QuantiseCoded(const uint16_t* halfs, int64_t count, std::byte* group) {
  constexpr int64_t kCount = NumCodedScales(kType);
  constexpr int64_t kPart = kGroupWeights / kCount;
  constexpr auto kMost = static_cast<int32_t>(MaxCode(kType));
  float weights[kGroupWeights];
  LoadWeights(halfs, count, weights);
  Coded steps;
  Coded less;
  for (int64_t k = 0; k < kGroupWeights; ++k) {
    if (-weights[k] > less.value[k / kPart]) less.value[k / kPart] = -weights[k];
  }
  less.Code(kCount);
  for (int64_t k = 0; k < kGroupWeights; ++k) {
    const float step = (weights[k] + less.value[k / kPart]) / static_cast<float>(kMost);
    if (step > steps.value[k / kPart]) steps.value[k / kPart] = step;
  }
  steps.Code(kCount);
  int32_t codes[kGroupWeights];
  for (int64_t k = 0; k < kGroupWeights; ++k) {
    const float step = steps.value[k / kPart];
    const float above = weights[k] + less.value[k / kPart];
    codes[k] = k < count && step > 0.0F ? NearestCode(above / step, kMost) : 0;
  }
  __builtin_memcpy(group, &steps.factor, sizeof(steps.factor));
  __builtin_memcpy(group + sizeof(steps.factor), &less.factor, sizeof(less.factor));
  for (int64_t i = 0; i < kCount; ++i) {
    group[kCodedScalesAt + i] = static_cast<std::byte>(steps.code[i]);
    group[kCodedScalesAt + kCount + i] = static_cast<std::byte>(less.code[i]);
  }
  PackCodes<kType>(codes, group + GroupHeadBytes(kType));
}

template <>
inline void QuantiseGroup<DType::kGgufK4>(const uint16_t* halfs, int64_t count, std::byte* group) {
  QuantiseCoded<DType::kGgufK4>(halfs, count, group);
}
template <>
inline void QuantiseGroup<DType::kGgufK6>(const uint16_t* halfs, int64_t count, std::byte* group) {
  QuantiseCoded<DType::kGgufK6>(halfs, count, group);
}

template <DType kType>
void QuantiseRun(const uint16_t* halfs, int64_t count, std::byte* row) {
  for (int64_t k = 0; k < count; k += kGroupWeights, row += GroupBytes(kType)) {
    QuantiseGroup<kType>(halfs + k, MinOf(kGroupWeights, count - k), row);
  }
}

inline void QuantiseSimd(const uint16_t* halfs, int64_t count, DType dtype, std::byte* row) {
  WithQuantised(dtype, [&]<DType kType>() { QuantiseRun<kType>(halfs, count, row); });
}

}  // namespace
}  // namespace spillway::kernels
