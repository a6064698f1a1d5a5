// Parts of CUDA C++ that kernels need, on the CPU. Shared memory is static: one block runs at a
// time.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_runtime_api.h"
#include "tests/soft_gpu/block.h"
#include "tests/soft_gpu/streams.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define threadIdx (spillway::soft_gpu::ThreadIndex())
#define blockIdx (spillway::soft_gpu::BlockIndex())
#define gridDim (spillway::soft_gpu::GridSize())

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  dim3(unsigned of_x, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};
struct float2 {
  float x, y;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

template <typename Args>
cudaError_t cudaLaunchKernel(void (*kernel)(Args), dim3 grid, dim3 threads, void** parameters,
                             std::size_t, cudaStream_t stream) {
  const auto args = *static_cast<const std::remove_const_t<Args>*>(parameters[0]);
  spillway::soft_gpu::Enqueue(stream, [=] {
    spillway::soft_gpu::RunGrid({grid.x, grid.y, grid.z}, threads.x, [&] { kernel(args); });
  });
  return cudaSuccess;
}

inline void __syncthreads() { spillway::soft_gpu::WaitForBlock(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int lane_mask) {
  static_assert(sizeof(T) == 4);
  const auto* shown = spillway::soft_gpu::Exchange({std::bit_cast<uint32_t>(value)});
  return std::bit_cast<T>(shown[spillway::soft_gpu::Lane() ^ static_cast<unsigned>(lane_mask)][0]);
}

inline unsigned __ballot_sync(unsigned, bool predicate) {
  const auto* shown = spillway::soft_gpu::Exchange({predicate ? 1U : 0U});
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) ballot |= shown[lane][0] << lane;
  return ballot;
}

inline int __popc(unsigned bits) { return std::popcount(bits); }

inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t choice = selector >> (4 * i) & 0xFU;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (choice & 7U))) & 0xFFU;
    if ((choice & 8U) != 0) byte = (byte & 0x80U) != 0 ? 0xFFU : 0;
    result |= byte << (8 * i);
  }
  return result;
}

template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
template <typename T>
T __ldcv(const T* pointer) {
  return *pointer;
}

inline float __expf(float x) { return std::exp(x); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
