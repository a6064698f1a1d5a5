// Shared code of all launchers and kernels: checked launches, fixed-order reductions, 16-bit types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "spillway/dtype.h"
#include "src/cuda/check.h"
#include "src/cuda/stream.h"

namespace spillway::kernels {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Thread rule of all launchers: they enqueue and return; kernels run in the stream's order. Throws:
// Error kGpu.
template <typename Args>
void LaunchKernel(void (*kernel)(Args), dim3 grid, int threads, Args args, Stream& stream,
                  const char* what) {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4096);
  void* parameters[] = {&args};
  CudaCheck(cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(threads)), parameters, 0,
                             stream.get()),
            what);
}

inline unsigned Blocks(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

__device__ inline float Widen(__half value) { return __half2float(value); }
__device__ inline float Widen(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ T Narrow(float value);
template <>
__device__ inline __half Narrow<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 Narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Two neighbours in one register, the lower address in the lower half.
template <typename T>
__device__ uint32_t NarrowPair(float low, float high) {
  const T pair[2] = {Narrow<T>(low), Narrow<T>(high)};
  uint32_t bits;
  memcpy(&bits, pair, sizeof(bits));
  return bits;
}

// Sum over groups of `width` neighbouring lanes; every lane gets the result. The tree is fixed.
template <int width>
__device__ float SumOverLanes(float value) {
#pragma unroll
  for (int offset = width / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <int width>
__device__ float MaxOverLanes(float value) {
#pragma unroll
  for (int offset = width / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// Sum over a block of kWarps warps: by lane, then by warp in order. `shared`: kWarps floats, free
// again when it returns.
template <int kWarps>
__device__ float SumOverBlock(float value, float* shared) {
  value = SumOverLanes<kWarp>(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp];
  __syncthreads();
  return sum;
}

template <int kWarps>
__device__ float MaxOverBlock(float value, float* shared) {
  value = MaxOverLanes<kWarp>(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float largest = shared[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) largest = fmaxf(largest, shared[warp]);
  __syncthreads();
  return largest;
}

// cap * tanh(score / cap); cap 0: the score.
__device__ inline float SoftCapped(float score, float cap) {
  return cap == 0.0F ? score : cap * tanhf(score / cap);
}

// A head's sink; minus infinity, which no softmax notices, where there are none.
__device__ inline float SinkOf(const float* sinks, int64_t head) {
  return sinks == nullptr ? -INFINITY : sinks[head];
}

}  // namespace spillway::kernels
