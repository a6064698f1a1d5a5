// Interface between attention_cpu.cc and the instruction sets: some queries of one row and KV head.
// Private to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/kv/kv_code.h"

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
  // Sums that the queries' weights are added to: [head of the group][slot], stride scores_stride;
  // null: not wanted. The scratch then has room for AttentionHistoryBytes behind
  // AttentionScratchBytes.
  float* scores = nullptr;
  int64_t scores_stride = 0;
  // Where keys are turned (AttentionTensors::turns): the row of each slot's turn; null: its number.
  const int32_t* turn_rows = nullptr;
  bool has_state = false;  // true: slots hold the tokens of the positions behind the block's values
};

// Neighbouring KV heads of a row with one new token. In each KV block their keys are one run of
// memory, and so are their values, so that the cache is read sequentially; head by head, in runs of
// a head's 8 slots, it would be read at two thirds of the memory's rate.
struct DecodeTask {
  const AttentionArgs* args = nullptr;
  const AttentionRow* row = nullptr;
  int64_t kv_head_begin = 0;
  int64_t kv_head_end = 0;   // with at most kDecodeQueries queries
  float* scratch = nullptr;  // of this worker, 64-byte aligned: AttentionScratchBytes
  int64_t block_bytes = 0;   // from one KV block of the row to the next
  // First keys of the next task, prefetched after the last values; null: none.
  const std::byte* next_keys = nullptr;
  // A softmax weight is weights * factors; null: not wanted.
  // weights: [slot / kAttentionKeys][query][slot % kAttentionKeys].
  // factors: [slot / kAttentionKeys][kDecodeQueries], one for a query and kAttentionKeys slots.
  float* weights = nullptr;
  float* factors = nullptr;
  // True: positions, and scores where weights are wanted, lie behind a block's values and are read
  // after them, so they are prefetched.
  bool has_state = false;
  const int32_t* turn_rows = nullptr;  // as in AttentionTask, of a task with one KV head
};

constexpr int64_t kAttentionQueries = 24;  // share one pass over the keys
constexpr int64_t kAttentionKeys =
    64;  // the softmax is updated once per block of this many slots, from slot 0

// Queries of one DecodeTask. Where more share a KV head, its queries are AttentionTasks.
constexpr int64_t kDecodeQueries = 32;
// Slots of one head that a DecodeTask reads before the next head's: two KV blocks at 16 bits, one
// at 8 and 4. Reading two runs of memory in turns is a third faster than reading one (Zen 3, one
// core), where a head has 1 to 2 KiB in each block.
constexpr int64_t kDecodeStep = 16;

constexpr int64_t AttentionPaddedDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
// Floats of a DecodeTask: queries and sums [32][dim], a step's keys or values [16][dim], weights
// [32][64], min and scale of one KV block, 3 of a query, the queries' numbers.
constexpr int64_t DecodeScratchFloats(int64_t head_dim) {
  return (2 * kDecodeQueries + kDecodeStep) * AttentionPaddedDim(head_dim) +
         kDecodeQueries * kAttentionKeys + 2 * kKvCodedBlockSlots * KvGroups(head_dim) +
         3 * kDecodeQueries + kDecodeQueries * KvQueryFloats(head_dim);
}
// Those of an AttentionTask: queries and sums [24][dim], a widened block of keys or values
// [64][dim], weights [24][64], the block's min and scale [4][group][16][2], 4 of a query (with
// room for whole registers), the queries' numbers.
constexpr int64_t TaskScratchFloats(int64_t head_dim) {
  return (2 * kAttentionQueries + kAttentionKeys) * AttentionPaddedDim(head_dim) +
         kAttentionQueries * kAttentionKeys + 2 * kAttentionKeys * KvGroups(head_dim) +
         4 * kAttentionQueries + kAttentionQueries * KvQueryFloats(head_dim);
}
// Of either.
constexpr int64_t AttentionScratchBytes(int64_t head_dim) {
  const int64_t of_decode = DecodeScratchFloats(head_dim);
  const int64_t of_task = TaskScratchFloats(head_dim);
  return 4 * (of_task > of_decode ? of_task : of_decode);
}
static_assert(kPrefixStep % kAttentionKeys == 0);  // no block lies in two places

// q k of 24 queries over all slots, kept until a query's maximum and total are known.
constexpr int64_t AttentionHistoryBytes(int64_t max_slots) {
  return (max_slots + kAttentionKeys - 1) / kAttentionKeys * kAttentionKeys * kAttentionQueries * 4;
}

struct AttentionFunctions {
  void (*store_kv)(const AttentionTask& task);  // all new tokens of the row, one KV head
  void (*attend)(const AttentionTask& task);
  void (*decode)(const DecodeTask& task);
};

const AttentionFunctions& AttentionFunctionsOf(Isa isa);

// Requires: 16, 8 or 4 bits of K and of V; means of keys of 4 bits alone.
void CheckKvBits(const AttentionTensors& args);

// KV heads of each DecodeTask of a row: runs of 64 KiB where there are so many, fewer heads where
// workers would be left idle. 1 where the group is over kDecodeQueries.
int64_t DecodeHeads(const AttentionArgs& args, int64_t num_rows, int num_threads);

extern const AttentionFunctions kAttentionPortable;
extern const AttentionFunctions kAttentionAvx2;
extern const AttentionFunctions kAttentionAvx512;
extern const AttentionFunctions kAttentionVnni;

}  // namespace spillway::kernels
