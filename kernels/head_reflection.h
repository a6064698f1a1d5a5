// Reflection of heads, ahead of a KV cache below 16 bits. Keys have a direction in common, their
// fixed channels with the large values, which would take up the range of their codes. A group of
// codes has its minimum for free. So queries and keys are reflected, which leaves every q . k as it
// is, such that the common direction becomes the one of equal elements: the minimum takes it, and
// the codes are of what is left. Each group of 64 along head_dim, and the shorter last one, has its
// own Householder reflection x' = x - v (v . x), |v|^2 = 2.
#pragma once

#include <cstdint>

#include "kernels/thread_pool.h"

namespace spillway::kernels {

struct HeadReflectionArgs {
  float* x = nullptr;  // [rows, num_heads * head_dim], row stride `stride` (in floats); in place
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  const float* reflectors =
      nullptr;  // v: [num_kv_heads, head_dim], of the KV head that heads share
};

// A row's bits depend on that row only, and are the same for every number of threads.
// Thread rule: one call at a time per pool.
void ReflectHeads(const HeadReflectionArgs& args, ThreadPool& pool);

// v of one KV head to `reflector`, [head_dim]. `common`, [head_dim], is any positive multiple of
// the direction, within each group. Zeros, which leave x as it is, for a group that has none: of
// zeros, or with a value that is not finite. Pure function; any thread.
void MakeReflector(const double* common, int64_t head_dim, float* reflector);

}  // namespace spillway::kernels
