// The body of Norm, compiled once per instruction set.
#pragma once

#include "kernels/rows/norm_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

inline float SumOf(const float* x, int64_t cols) {
  Simd::F sum = Simd::Zero();
  int64_t i = 0;
  for (; i + Simd::kLanes <= cols; i += Simd::kLanes) sum = Simd::Add(sum, Simd::Load(x + i));
  if (i < cols) sum = Simd::Add(sum, Simd::LoadPart(x + i, cols - i));
  return Simd::Sum(sum);
}

inline float SumOfSquares(const float* x, int64_t cols, float mean) {
  const Simd::F center = Simd::Set(mean);
  Simd::F sum = Simd::Zero();
  int64_t i = 0;
  for (; i + Simd::kLanes <= cols; i += Simd::kLanes) {
    const Simd::F d = Simd::Sub(Simd::Load(x + i), center);
    sum = Simd::Fma(d, d, sum);
  }
  float tail = 0;  // not in lanes: the empty ones would hold (0 - mean)^2
  for (; i < cols; ++i) tail += (x[i] - mean) * (x[i] - mean);
  return Simd::Sum(sum) + tail;
}

inline Simd::F WeightAt(const NormArgs& args, int64_t i, int64_t n) {
  const Simd::F weight = Simd::LoadPart(args.weight + i, n);
  if (args.weight_offset == 0.0F) return weight;  // also -0, which 0 + -0 is not
  return Simd::Add(Simd::Set(args.weight_offset), weight);
}

// `plus`: null, or what is added to the row.
inline void NormRow(const NormArgs& args, const float* x, float* y, const float* plus) {
  const float cols = static_cast<float>(args.cols);
  // The RMS norm is the layer norm around zero, which leaves x as it is.
  const float mean = args.kind == NormKind::kLayer ? SumOf(x, args.cols) / cols : 0.0F;
  const float variance = SumOfSquares(x, args.cols, mean) / cols;
  const Simd::F center = Simd::Set(mean);
  const Simd::F scale = Simd::Set(1.0F / __builtin_sqrtf(variance + args.epsilon));
  for (int64_t i = 0; i < args.cols; i += Simd::kLanes) {
    const int64_t n = MinOf(args.cols - i, Simd::kLanes);
    Simd::F v = Simd::Mul(Simd::Sub(Simd::LoadPart(x + i, n), center), scale);
    if (args.weight != nullptr) v = Simd::Mul(v, WeightAt(args, i, n));
    if (args.bias != nullptr) v = Simd::Add(v, Simd::LoadPart(args.bias + i, n));
    if (plus != nullptr) v = Simd::Add(v, Simd::LoadPart(plus + i, n));
    Simd::StorePart(y + i, v, n);
  }
}

inline void NormRowsSimd(const NormArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* plus = args.plus == nullptr ? nullptr : args.plus + row * args.plus_stride;
    NormRow(args, args.x + row * args.x_stride, args.y + row * args.y_stride, plus);
  }
}

}  // namespace
}  // namespace spillway::kernels
