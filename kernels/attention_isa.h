// What attention_cpu.cc hands to the instruction sets: some queries of one row and KV head. Private
// to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace spillway::kernels {

// A query is one head of one new token. Those that share a KV head are counted token by token:
// query i of the row is token i / group, head kv_head * group + i % group, group = num_heads /
// num_kv_heads.
struct AttentionTask {
  const AttentionArgs* args = nullptr;
  const AttentionRow* row = nullptr;
  int64_t kv_head = 0;
  int64_t query_begin = 0;
  int64_t query_end = 0;     // at most kAttentionQueries more
  float* scratch = nullptr;  // of this worker, 64-byte aligned
  int64_t block_bytes = 0;   // from one KV block of the row to the next
  // Where weights are added, [head of the group][slot], stride scores_stride; null: nowhere. The
  // scratch then has room for AttentionHistoryBytes behind AttentionScratchBytes.
  float* scores = nullptr;
  int64_t scores_stride = 0;
  const std::byte* next_keys = nullptr;  // what this worker attends to next; null: not known
};

constexpr int64_t kAttentionQueries = 24;  // share one pass over the keys
constexpr int64_t kAttentionKeys =
    64;  // the softmax is updated once per block of this many slots, from slot 0

constexpr int64_t AttentionPaddedDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
// Queries and sums [24][dim], a widened block of keys or values [64][dim], weights [24][64], the
// block's min and scale [4][group][16][2], 4 floats a query.
constexpr int64_t AttentionScratchBytes(int64_t head_dim) {
  return ((2 * kAttentionQueries + kAttentionKeys) * AttentionPaddedDim(head_dim) +
          kAttentionQueries * kAttentionKeys + 2 * kAttentionKeys * KvGroups(head_dim) +
          4 * kAttentionQueries) *
         4;
}

// q k of 24 queries over all slots, kept until a query's maximum and total are known.
constexpr int64_t AttentionHistoryBytes(int64_t max_slots) {
  return (max_slots + kAttentionKeys - 1) / kAttentionKeys * kAttentionKeys * kAttentionQueries * 4;
}

struct AttentionFunctions {
  void (*store_kv)(const AttentionTask& task);  // all new tokens of the row, one KV head
  void (*attend)(const AttentionTask& task);
};

const AttentionFunctions& AttentionFunctionsOf(Isa isa);

// How many tasks of one query one worker does in a row, so that it can fetch each one's first keys
// while it ends the one before it: 8, or fewer where that would leave workers idle.
int64_t AttentionRunLength(int64_t num_tasks, int num_threads);

const std::byte* AttentionKeys(const AttentionTask& task);  // those in slot 0

// Asks the caches for the first new token's q, k and v of a task that comes soon.
void PrefetchInputs(const AttentionTask& task);

extern const AttentionFunctions kAttentionPortable;
extern const AttentionFunctions kAttentionAvx2;
extern const AttentionFunctions kAttentionAvx512;

}  // namespace spillway::kernels
