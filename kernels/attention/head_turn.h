// Turn of heads before a KV cache of 4 bits: the Hadamard transform of head_dim elements, scaled to
// keep lengths. It spreads a few large channels, which rotated keys have at no fixed place, over
// all: the groups' ranges shrink. Queries and keys are both turned, which leaves every q . k as it
// is. Where values are turned, the attended outputs are turned as well: the transform is its own
// inverse.
#pragma once

#include <cstdint>

#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct HeadTurnArgs {
  float* x = nullptr;  // [rows, num_heads * head_dim], row stride `stride` (in floats); in place
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;  // a power of two, at most kMaxTurnedDim
};

inline constexpr int64_t kMaxTurnedDim = 256;

// A row's bits depend on that row only, and are the same for every number of threads.
// Thread rule: one call at a time per pool.
void TurnHeads(const HeadTurnArgs& args, ThreadPool& pool);

// Pointers are to GPU memory; rows: under 2^16. Stream: one kernel.
void TurnHeadsAsync(const HeadTurnArgs& args, Stream& stream);

}  // namespace spillway::kernels
