// The activation after a product, the same for all GPU kernels.
#pragma once

#include <cmath>

#include "kernels/simd/launch.cuh"
#include "spillway/model.h"  // Activation

namespace spillway::kernels {

// Roundings are spelled out, so that no kernel's neighbouring sums are fused with them: an output's
// bits do not depend on the kernel that computes it.
__device__ inline float Activate(float x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0.0F ? 0.0F : x;  // a NaN stays one
    case Activation::kGelu:
      return __fmul_rn(__fmul_rn(0.5F, x), erfcf(__fmul_rn(-x, 0.70710678F)));
    case Activation::kGeluTanh: {
      const float cube = __fmul_rn(__fmul_rn(__fmul_rn(0.044715F, x), x), x);
      const float inner = __fmul_rn(0.79788456F, __fadd_rn(x, cube));
      return __fmul_rn(__fmul_rn(0.5F, x), __fadd_rn(1.0F, tanhf(inner)));
    }
    case Activation::kSilu:
      return __fdiv_rn(x, __fadd_rn(1.0F, expf(-x)));
    case Activation::kClampedSwish: {
      const float gate = x > kClampLimit ? kClampLimit : x;
      return __fdiv_rn(gate, __fadd_rn(1.0F, expf(__fmul_rn(-kSwishSlope, gate))));
    }
    case Activation::kClampedOffset: {
      const float below = x > kClampLimit ? kClampLimit : x;
      return __fadd_rn(below < -kClampLimit ? -kClampLimit : below, 1.0F);
    }
  }
  return x;
}

}  // namespace spillway::kernels
