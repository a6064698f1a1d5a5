// Instructions for tiles of products: asynchronous copies to shared memory, ldmatrix, and
// mma.m16n8k16 of 16-bit factors with fp32 sums; all lanes of a warp take part. mma_index.h says
// which of their elements a lane holds. tests/soft_gpu has the same on the CPU.
#pragma once

#include "kernels/simd/launch.cuh"

namespace spillway::kernels {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A 16-byte copy to shared memory that this thread does not wait for; zeros where not `is_there`.
__device__ inline void CopyAsync16(void* to, const void* from, bool is_there) {
  const int bytes = is_there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(bytes)
               : "memory");
}

__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's committed groups are under way.
template <int kPending>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

struct Fragment4 {
  uint32_t words[4];
};

template <bool kTransposed>
__device__ Fragment4 LoadMatrices(const void* row) {
  Fragment4 f;
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f.words[0]), "=r"(f.words[1]), "=r"(f.words[2]), "=r"(f.words[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f.words[0]), "=r"(f.words[1]), "=r"(f.words[2]), "=r"(f.words[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
  return f;
}

template <typename T>
__device__ void MultiplyAdd(float (&c)[4], const Fragment4& a, uint32_t b0, uint32_t b1);

template <>
__device__ inline void MultiplyAdd<__half>(float (&c)[4], const Fragment4& a, uint32_t b0,
                                           uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void MultiplyAdd<__nv_bfloat16>(float (&c)[4], const Fragment4& a, uint32_t b0,
                                                  uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}

}  // namespace spillway::kernels
