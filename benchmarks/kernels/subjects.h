// The subjects of kernel_bench: each measures one group of kernels and prints its lines.
// One function a file, <name>_bench.cc; kernel_bench.cc lists them for --only.
#pragma once

#include "benchmarks/kernels/bench.h"

namespace spillway::kernels {

// Products of one to 512 rows, beside libtorch's, and gated ones; and those of a decode step beside
// the memory.
void BenchMatmul(Bench& bench);
// Decode and prefill over full caches.
void BenchAttention(Bench& bench);
// Decode with a KV budget, prefill that keeps token scores, and the log of rows on disk.
void BenchBudget(Bench& bench);
// The extra time of H2O's decode over plain attention of as many slots, measured in turns.
void BenchBookkeeping(Bench& bench);
// Likewise, where heads share a KV head.
void BenchGrouped(Bench& bench);
// Conversions, fills, norms and rotary positions.
void BenchRows(Bench& bench);

}  // namespace spillway::kernels
