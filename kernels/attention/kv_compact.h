// Compaction of a prompt's KV: from the workspace that prefill attends to, where all tokens lie, to
// the row's cache of fixed size, with scores and positions. kernels/kv/kv_eviction.h has the rule.
// Thread rule: one call at a time per pool and workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/kv_block.h"
#include "spillway/kv_policy.h"
#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// One row, after the last chunk of its prompt; or some KV heads of it, where these have caches of
// their own. `from` and `kv` do not overlap.
struct KvCompactRow {
  const std::byte* from = nullptr;      // KV of the tokens from prefix_tokens on, without state;
                                        // 32-byte aligned
  const float* token_scores = nullptr;  // [num_heads][token_scores_stride], as Attention left them
  int64_t num_tokens = 0;
  std::byte* kv = nullptr;  // the row's cache, with state; 32-byte aligned
  int64_t num_slots = 0;    // of kv; a multiple of KvBlockSlots
  KvKeep keep;
  int64_t kv_head = 0;                // the first of the KV heads that `kv` holds; `from` holds all
  const std::byte* prefix = nullptr;  // KV of the tokens before them; null: there are none
  int64_t prefix_tokens = 0;          // a multiple of kPrefixStep
  int64_t column = 0;                 // of the GPU's workspace: the row's first
};

struct KvCompactArgs {
  std::span<const KvCompactRow> rows;
  KvPolicyKind kind = KvPolicyKind::kH2o;  // not kFull; with kWindow token_scores may be null
  int64_t token_scores_stride = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  KvBits kv_bits = {};        // elements are only copied: their type does not matter
  int64_t run_kv_heads = 0;   // that a row's `kv` holds; 0: all num_kv_heads
  int64_t kv_block_fill = 0;  // bytes behind each block of `kv`; `from` and `prefix` have none

  constexpr int64_t RunHeads() const { return run_kv_heads == 0 ? num_kv_heads : run_kv_heads; }
};

int64_t KvCompactWorkspaceBytes(int64_t max_tokens, int num_threads);

// Copies what stays to slots [0, min(num_tokens, keep.slots())), in order of position, with its
// scores (summed over the heads that share a KV head, in their order; 0 without token_scores) and
// positions. Requires: workspace as above. Allocates nothing.
void KvCompact(const KvCompactArgs& args, std::span<std::byte> workspace, ThreadPool& pool);

// The oracle: sorts all tokens, head by head.
void KvCompactRef(const KvCompactArgs& args);

// Arguments of the GPU's kernel: pointers, the rows and what they point to are in GPU memory.
struct GpuKvCompactArgs {
  KvCompactArgs compact;    // head_dim: a multiple of 8
  int64_t num_columns = 0;  // rows' are apart, one a token
  float* scores = nullptr;  // [num_kv_heads, num_columns]: workspace
  int32_t* kept = nullptr;  // the same
};

// Stream: one kernel.
void KvCompactAsync(const GpuKvCompactArgs& args, Stream& stream);

}  // namespace spillway::kernels
