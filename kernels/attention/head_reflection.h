// Reflection of heads before a KV cache below 16 bits. Keys have a direction in common: a few fixed
// channels with large values, which would take up the range of their codes. A group of codes stores
// its minimum anyway. So queries and keys are both reflected, which leaves every q . k as it is,
// such that the common direction becomes the one of equal elements: the minimum absorbs it, and the
// codes hold the rest. Each group of 64 along head_dim, and the shorter last one, has its own
// Householder reflection x' = x - v (v . x), |v|^2 = 2.
#pragma once

#include <cstdint>

#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

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

// Pointers are to GPU memory; head_dim: a multiple of 8; rows: under 2^16. Stream: one kernel.
void ReflectHeadsAsync(const HeadReflectionArgs& args, Stream& stream);

// Keys, and the sums of their directions.
struct KeyDirectionArgs {
  const float* keys = nullptr;  // [rows, num_kv_heads * head_dim], row stride `stride` (in floats)
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double* common = nullptr;  // [num_kv_heads, head_dim]
};

// common += key / |key|, group by group and in order of the rows. Keys are divided by their length,
// for a long key, as the first token's often is, would count more than the others. A key that is
// not finite makes the sum so; one of zeros adds nothing. Any thread.
void AddKeyDirections(const KeyDirectionArgs& args);
// Stream: one kernel.
void AddKeyDirectionsAsync(const KeyDirectionArgs& args, Stream& stream);

struct ReflectorArgs {
  double* common = nullptr;  // [num_kv_heads, head_dim]; zeros afterwards
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float* reflectors = nullptr;  // [num_kv_heads, head_dim]
};

// Computes v of each KV head. `common` is any positive multiple of the direction, within each
// group. A group without one, of zeros or with a value that is not finite, gets zeros, which leave
// x as it is. Any thread.
void MakeReflectors(const ReflectorArgs& args);
// Stream: one kernel.
void MakeReflectorsAsync(const ReflectorArgs& args, Stream& stream);

}  // namespace spillway::kernels
