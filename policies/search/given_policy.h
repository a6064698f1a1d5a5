// GivenPolicy: what is stated of a policy, by flags or a file; the rest is chosen. What is stated
// is never changed. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "policies/search/placement.h"
#include "spillway/policy.h"

namespace spillway {

// Limits of what flags and files may state.
inline constexpr int64_t kMaxRows = 1 << 20;    // rows of a batch, batches of a block
inline constexpr int64_t kMaxTokens = 1 << 24;  // tokens of a row, or computed at a time

struct GivenPolicy {
  std::optional<Placement> placement;
  std::optional<int64_t> gpu_batch_size;
  std::optional<int64_t> num_gpu_batches;
  std::optional<int64_t> prefill_chunk;
  std::optional<bool> cpu_attention;
  std::optional<int> weight_bits;  // taken when the model is opened
  std::optional<DType> kv_dtype;
  std::optional<KvBits> kv_bits;
  std::optional<KvPolicy> kv;
};

}  // namespace spillway
