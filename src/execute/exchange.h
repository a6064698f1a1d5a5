// Exchange: the memory through which a GPU's executor and the host pass what is neither weights nor
// KV nor hidden states: the tables that the kernels of a compute read, and the logits. Sized by the
// plan. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "spillway/plan.h"
#include "src/execute/attention_lists.h"

namespace spillway {

// Computes that the host may be ahead of the GPU; each has a table of its own in host memory.
// Enough that a sleeping host wakes before the GPU runs dry.
inline constexpr int64_t kComputesAhead = 4;
inline constexpr int64_t kHostTables = kComputesAhead + 1;

// What the attention kernels leave for one another: offsets within plan.exchange.device. Either of
// a full cache or of one that evicts.
struct AttentionScratch {
  Region partials;        // fp32: of decode attention's splits
  Region log_sums;        // fp32 [chunk tokens, heads]: of prefill, for the token scores
  Region compact_scores;  // fp32 [KV heads, prompt slots]
  Region compact_kept;    // int32, the same
  Region weights;         // fp32 [rows, heads, weights_stride]: of a decode step
  Region reference;       // of the reference prompt: reference_keys.h
  int64_t weights_stride = 0;
  int64_t end = 0;
};

// Sizes, and offsets within plan.exchange.
struct ExchangeLayout {
  int64_t table_bytes = 0;
  AttentionScratch scratch;  // GPU, behind the table
  int64_t logits_bytes = 0;  // host, behind the tables
};

ExchangeLayout LayOutExchange(const Plan& plan);
AttentionLimits ChunkLimits(const Plan& plan);

// What plan.exchange takes. Requires: all of the plan but its exchange is laid out.
ExchangeBytes ExchangeBytesOf(const Plan& plan);

}  // namespace spillway
