// AttentionCase: attention of equal rows over full caches, random, queries 2048 wide; measured for
// the subjects attention (decode, prefill) and budget (prefill that keeps token scores).
#pragma once

#include "benchmarks/kernels/bench.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {

struct AttentionCase {
  const char* name;
  int64_t num_rows;
  int64_t past;     // tokens a row in the cache
  int64_t num_new;  // tokens a row
  int64_t head_dim;
  bool scored = false;  // with token scores
  KvBits kv_bits = {};
  int64_t group = 1;  // heads that share a KV head
};

// Measures the case and prints its line.
void BenchAttentionCase(Bench& bench, const AttentionCase& of);

}  // namespace spillway::kernels
