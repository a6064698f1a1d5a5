// 16 bytes of a key or a value: the unit in which the attention kernels read the cache.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/attention_index.h"

namespace spillway::kernels {

inline constexpr int kVectorElements = 8;

struct VectorPlace {
  int64_t kv_head;
  int64_t slot;
  int64_t vector;  // of the head's dimensions
};

__device__ inline const uint4* KvVector(const std::byte* kv, const KvLayout& layout, KvPart part,
                                        const VectorPlace& place) {
  return reinterpret_cast<const uint4*>(kv + KvOffset(layout, part, place.kv_head, place.slot)) +
         place.vector;
}

template <typename T>
__device__ void WidenVector(const uint4& vector, float (&values)[kVectorElements]);

template <>
__device__ inline void WidenVector<__half>(const uint4& vector, float (&values)[kVectorElements]) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    __half2 pair;
    memcpy(&pair, &words[word], sizeof(pair));
    const float2 both = __half22float2(pair);
    values[2 * word] = both.x;
    values[2 * word + 1] = both.y;
  }
}

// bf16 is the upper half of a float.
template <>
__device__ inline void WidenVector<__nv_bfloat16>(const uint4& vector,
                                                  float (&values)[kVectorElements]) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    values[2 * word] = __uint_as_float(words[word] << 16);
    values[2 * word + 1] = __uint_as_float(words[word] & 0xFFFF0000U);
  }
}

}  // namespace spillway::kernels
