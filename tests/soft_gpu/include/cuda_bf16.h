// bf16 as kernels use it.
#pragma once

#include "cuda_runtime.h"
#include "kernels/convert/convert.h"

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return spillway::kernels::BFloat16ToFloat(value.bits);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {spillway::kernels::FloatToBFloat16(value)};
}
