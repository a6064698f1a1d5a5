// Groups of packed weights as factors of mma.m16n8k16: packed_index.h on the GPU.
#pragma once

#include "kernels/convert/packed_index.h"
#include "kernels/simd/launch.cuh"
#include "kernels/simd/mma.cuh"

namespace spillway::kernels {

__device__ inline __half2 AsHalfs(uint32_t word) {
  __half2 halfs;
  memcpy(&halfs, &word, sizeof(halfs));
  return halfs;
}

__device__ inline uint32_t AsWord(__half2 halfs) {
  uint32_t word;
  memcpy(&word, &halfs, sizeof(word));
  return word;
}

// A lane's words of one group of one matrix row.
template <DType kDType>
struct PackedLane {
  uint32_t head[GroupHeadWords(kDType)];
  uint32_t words[LaneWords(kDType)];

  __device__ void Load(const uint32_t* group, int quad_lane) {
#pragma unroll
    for (int i = 0; i < GroupHeadWords(kDType); ++i) head[i] = __ldg(group + i);
#pragma unroll
    for (int i = 0; i < LaneWords(kDType); ++i) {
      words[i] = __ldg(group + GroupHeadWords(kDType) + LaneWord(kDType, quad_lane, i));
    }
  }

  // The codes of two columns above kBias, those of the high nibbles times 16.
  __device__ __half2 Biased(int step, int half) const {
    if constexpr (CodeBits(kDType) == 8) {
      return AsHalfs(__byte_perm(words[step], kBias, ByteSelector(half)));
    } else {
      const uint32_t bytes = __byte_perm(words[0], words[1], NibbleSelector(step));
      return AsHalfs((bytes & (half == 0 ? kLowNibbles : kHighNibbles)) | kBias);
    }
  }

  // Codes of 6 bits of two columns; exact.
  __device__ __half2 Sixes(int step, int half) const {
    const uint32_t bytes = __byte_perm(words[0], words[1], NibbleSelector(step));
    const uint32_t low = (half == 0 ? bytes : bytes >> 4) & kLowNibbles;
    const uint32_t high = (words[2] >> HighShift(step, half)) & kHighPairs;
    return __hsub2(AsHalfs(low | high << 4 | kBias), AsHalfs(kBias));
  }

  // The codes of two columns; exact.
  __device__ __half2 Codes(int step, int half) const {
    if constexpr (CodeBits(kDType) == 6) return Sixes(step, half);
    if (CodeBits(kDType) == 8 || half == 0) return __hsub2(Biased(step, half), AsHalfs(kBias));
    return __hfma2(Biased(step, half), AsHalfs(kSixteenth), AsHalfs(kMinus64));
  }

  // Numbers of E2M1 of two columns; exact. Their exponent and mantissa bits are those of an fp16
  // that is 2^14 times smaller, subnormal where they are.
  __device__ __half2 Numbers(int step, int half) const {
    const uint32_t bytes = __byte_perm(words[0], words[1], NibbleSelector(step));
    const uint32_t codes = half == 0 ? bytes : bytes >> 4;
    const uint32_t small = (codes & kMagnitudes) << 9 | (codes & kSigns) << 12;
    return __hmul2(AsHalfs(small), AsHalfs(kTwoTo14));
  }

  // Numbers of E4M3 of two columns over 256; exact: their bits are those of such an fp16.
  __device__ __half2 SmallNumbers(int step, int half) const {
    const uint32_t bytes = __byte_perm(words[step], 0, ByteSelector(half));
    return AsHalfs((bytes & kFp8Magnitudes) << 7 | (bytes & kFp8Signs) << 8);
  }

  // Codes of two columns less the zero point, over 256; exact.
  __device__ __half2 SmallSteps(int step, int half, float zero) const {
    constexpr float kBiasValue = 1024.0F;
    const bool is_high = CodeBits(kDType) == 4 && half == 1;
    const float of_code = is_high ? 1.0F / 16.0F : 1.0F;
    return __hfma2(Biased(step, half), __float2half2_rn(PerScaleUp(of_code)),
                   __float2half2_rn(PerScaleUp(-kBiasValue * of_code - zero)));
  }

  // Coded scale or minimum `index` of the head.
  __device__ float Coded(int index) const {
    const int at = static_cast<int>(kCodedScalesAt) + index;
    return static_cast<float>(static_cast<int8_t>(head[at / 4] >> at % 4 * 8));
  }

  // Weights of two columns under the scale and the minimum of their part of the group, in fp32.
  __device__ __half2 Scaled(int step, int half) const {
    constexpr int kCount = static_cast<int>(NumCodedScales(kDType));
    const int part = step * kCount / kGroupSteps;
    const float2 factors = __half22float2(AsHalfs(head[0]));
    const float scale = factors.x * Coded(part);
    const float less = -factors.y * Coded(kCount + part);
    const float2 codes = __half22float2(Codes(step, half));
    return __floats2half2_rn(__fmaf_rn(codes.x, scale, less), __fmaf_rn(codes.y, scale, less));
  }

  // Weights of two columns in fp16: rounded once, and of kInt8, kInt4 and kFp8 so is 256 times the
  // scale before; of kMxfp4 they are exact.
  __device__ uint32_t Weights(int step, int half) const {
    if constexpr (HasCodedScales(kDType)) {
      return AsWord(Scaled(step, half));
    } else {
      return AsWord(Stepped(step, half));
    }
  }

  // The half of a head's word that is for the half of a group that a step is in.
  __device__ static __half2 OfHalf(__half2 pair, int step) {
    return step < kGroupSteps / 2 ? __low2half2(pair) : __high2half2(pair);
  }

  // Those of types with halfs or a float for a head.
  __device__ __half2 Stepped(int step, int half) const {
    if constexpr (kDType == DType::kFp8) {
      const __half2 scale = __float2half2_rn(kScaleUp * __uint_as_float(head[0]));
      return __hmul2(SmallNumbers(step, half), scale);
    }
    if constexpr (HasZeroPoint(kDType)) {
      const __half2 scale = __float2half2_rn(kScaleUp * __uint_as_float(head[0] & ~kZeroMask));
      const auto zero = static_cast<float>(head[0] & kZeroMask);
      return __hmul2(SmallSteps(step, half, zero), scale);
    }
    const __half2 first_and_second = AsHalfs(head[0]);
    if constexpr (kDType == DType::kMxfp4 || HasTwoScales(kDType) || HasTwoMinimums(kDType)) {
      const __half2 scale = OfHalf(first_and_second, step);
      if constexpr (kDType == DType::kMxfp4) return __hmul2(Numbers(step, half), scale);
      if constexpr (HasTwoMinimums(kDType)) {
        return __hfma2(Codes(step, half), scale, OfHalf(AsHalfs(head[kMinimumsAt / 4]), step));
      }
      const auto middle = static_cast<float>(MiddleCode(kDType));
      return __hmul2(__hsub2(Codes(step, half), __float2half2_rn(middle)), scale);
    }
    return __hfma2(Codes(step, half), __high2half2(first_and_second),
                   __low2half2(first_and_second));
  }
};

// A lane's words of one group of the 16 matrix rows of an mma.
template <DType kDType>
struct PackedRows {
  PackedLane<kDType> low;   // row lane / 4
  PackedLane<kDType> high;  // row lane / 4 + 8

  __device__ Fragment4 Factors(int step) const {
    return {
        {low.Weights(step, 0), high.Weights(step, 0), low.Weights(step, 1), high.Weights(step, 1)}};
  }
};

// First groups of a lane's two matrix rows of the 16.
struct PackedRowPointers {
  const uint32_t* low;
  const uint32_t* high;

  template <DType kDType>
  __device__ void Load(int group, PackedRows<kDType>& rows) const {
    const int quad_lane = static_cast<int>(threadIdx.x % 4);
    rows.low.Load(low + group * GroupWords(kDType), quad_lane);
    rows.high.Load(high + group * GroupWords(kDType), quad_lane);
  }
};

// sums[m][n] += 16 matrix rows m times 8 rows n of x over one group, in its order. load_x(n, pair):
// the lane's vector (XVector) of row lane / 4 of those 8.
template <DType kDType, int kOutTiles, int kRowTiles, typename LoadX>
__device__ void MultiplyGroup(const PackedRows<kDType> (&weights)[kOutTiles], LoadX load_x,
                              float (&sums)[kOutTiles][kRowTiles][4]) {
#pragma unroll
  for (int pair = 0; pair < kGroupSteps / 2; ++pair) {
    Fragment4 factors[kOutTiles][2];
#pragma unroll
    for (int m = 0; m < kOutTiles; ++m) {
      factors[m][0] = weights[m].Factors(2 * pair);
      factors[m][1] = weights[m].Factors(2 * pair + 1);
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const uint4 x = load_x(n, pair);
#pragma unroll
      for (int m = 0; m < kOutTiles; ++m) {
        MultiplyAdd<__half>(sums[m][n], factors[m][0], x.x, x.y);
      }
#pragma unroll
      for (int m = 0; m < kOutTiles; ++m) {
        MultiplyAdd<__half>(sums[m][n], factors[m][1], x.z, x.w);
      }
    }
  }
}

}  // namespace spillway::kernels
