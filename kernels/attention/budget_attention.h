// One decode step over a KV cache of fixed size: attention, the tokens' scores, and the eviction of
// the token that must make room. kernels/kv/kv_eviction.h has the rule, spillway/kv_block.h the
// layout. A row's result and cache depend on that row only, to the bit, and its output is that of
// Attention over the same slots. Thread rule: one call at a time per pool and workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "spillway/kv_policy.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// One row and its one new token; or some KV heads of it, where these have caches of their own.
struct BudgetAttentionRow {
  std::byte* kv = nullptr;   // with state; 32-byte aligned
  int64_t num_slots = 0;     // allocated; a multiple of KvBlockSlots, over num_held
  int64_t num_held = 0;      // tokens in slots [0, num_held), of each KV head; <= keep.slots()
  int64_t position = 0;      // of the new token: higher than any held; under 2^24
  KvKeep keep;               // recent >= 1; with kWindow heavy is 0
  int64_t token_offset = 0;  // index of the new token in the packed q, k, v and out
  int64_t kv_head = 0;       // the first of the KV heads that `kv` holds
  int64_t newest_place = 0;  // with turns: of the new token, by which q was turned; >= num_held
};

struct BudgetAttentionArgs : AttentionTensors {
  std::span<const BudgetAttentionRow> rows;
  KvPolicyKind kind = KvPolicyKind::kH2o;  // not kFull; kWindow leaves the scores alone
  int64_t run_kv_heads = 0;                // that a row's `kv` holds; 0: all num_kv_heads

  constexpr int64_t RunHeads() const { return run_kv_heads == 0 ? num_kv_heads : run_kv_heads; }
};

int64_t BudgetAttentionWorkspaceBytes(int64_t max_slots, int64_t head_dim, int num_threads,
                                      Isa isa);

// Per row and KV head that it holds: stores the new token, rounded as Attention does, in slot
// num_held; attends over slots [0, num_held]; adds the weights, summed over the heads that share
// the KV head in their order, to the scores, the new token's starting with its own. If then more
// than keep.slots() are held, the lowest-scoring candidate is evicted and the new token moves to
// its slot. With turns a key is turned by newest_place less the tokens that are held
// behind its own; with means it gets the mean at its own position. HeldAfterStep of
// kernels/kv/kv_eviction.h is the row's next num_held. Weights that are equal in exact arithmetic
// may be some ulps apart 64 slots further on. Requires: workspace as above. Allocates nothing.
void BudgetAttention(const BudgetAttentionArgs& args, std::span<std::byte> workspace,
                     ThreadPool& pool, Isa isa);

// The oracle: plain softmax in double, scores rounded to fp32 once per step. Queries as those of
// AttentionRef.
void BudgetAttentionRef(const BudgetAttentionArgs& args);
void BudgetAttentionRefUnrounded(const BudgetAttentionArgs& args);

// Arguments of the GPU's kernel: pointers, the rows and what they point to are in GPU memory.
struct GpuBudgetAttentionArgs {
  BudgetAttentionArgs step;    // head_dim: a multiple of 8, at most kMaxGpuHeadDim
  float* weights = nullptr;    // [rows, query heads of a run, weights_stride]: workspace
  int64_t weights_stride = 0;  // over any row's num_held
  // [rows, KV heads of a run, weights_stride]: workspace where keys are turned
  int32_t* turn_rows = nullptr;
};

// Stream: one kernel.
void BudgetAttentionAsync(const GpuBudgetAttentionArgs& args, Stream& stream);

}  // namespace spillway::kernels
