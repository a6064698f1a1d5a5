// Policy: what is put where and how large a block is. Decided by flags, a file or the planner.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "spillway/dtype.h"
#include "spillway/kv_block.h"
#include "spillway/kv_policy.h"
#include "spillway/tier.h"

namespace spillway {

// Enough tokens for a weight tile to be converted once and used often; 16 MiB of MLP activations at
// hidden 2048.
inline constexpr int64_t kPrefillChunk = 512;

// Enough tokens that a product of 4,096 outputs has work for all processors of a GPU; taken where
// its memory has room for the activations.
inline constexpr int64_t kGpuPrefillChunk = 2048;

struct Policy {
  PerTier<double> weight_frac;  // each sums to 1
  PerTier<double> kv_frac;
  PerTier<double> activation_frac;
  bool placement_is_stated = true;  // these, by flags or a file; chosen ones may be chosen anew
  int64_t gpu_batch_size = 1;       // rows computed together
  int64_t num_gpu_batches = 1;      // batches that one read of a layer's weights serves
  int weight_bits = 16;             // the shape's, for those who are told the policy alone
  // fp16 for bf16 models too: bf16's 8 bits of mantissa put logits 0.01 off (0.001 with fp16), and
  // K and V come nowhere near 65504. A value that overflows makes its row fail with E-NONFINITE;
  // --kv-dtype bf16 is the way out.
  DType kv_dtype = DType::kF16;
  KvBits kv_bits =
      {};       // of an element; 8 and 4: codes of groups of 64, kv_block.h, in place of dtype
  KvPolicy kv;  // which tokens stay
  bool cpu_attention = false;  // KV off the device is attended to by the CPU, where it lies
  int64_t prefill_chunk = kPrefillChunk;  // tokens of a batch computed at a time in a prefill pass
  // A row on disk whose tokens are evicted is written whole at least once in so many passes; 1: in
  // each, without a log (KvLogPlan).
  int64_t most_log_passes = 64;
  // Bytes behind each block of a row's KV (Plan::kv_block_fill), a multiple of 32; none: the plan
  // chooses.
  std::optional<int64_t> kv_block_fill;
};

}  // namespace spillway
