// Causal attention over a KV cache of 16, 8 or 4 bits, for ragged packed rows; prefill and decode.
// A query's result depends on that query and its own row's cache only: keys are visited in slot
// order in fixed blocks, so neither the neighbours, nor the prefill chunk, nor the number of
// threads changes a bit. Thread rule: one call at a time per pool and workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kv/key_means.h"
#include "kernels/kv/key_turns.h"
#include "spillway/dtype.h"
#include "spillway/kv_block.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway::kernels {

// One row (sequence) of the packed batch. Its cache for this layer is laid out in blocks, as
// spillway/kv_block.h says; the first slots may lie elsewhere, where other rows read them too.
struct AttentionRow {
  std::byte* kv = nullptr;   // of the slots from prefix_slots on; 32-byte aligned
  int64_t num_slots = 0;     // allocated, the prefix's included; a multiple of KvBlockSlots
  int64_t num_past = 0;      // tokens already in slots [0, num_past)
  int64_t num_new = 0;       // tokens of this call; they take slots [num_past, num_past + num_new)
  int64_t token_offset = 0;  // index of the first of them in the packed q, k, v and out
  // [num_heads][token_scores_stride], null: not wanted. The softmax weight that each new token's
  // query gives to a token is added to the token's score, in order of the queries. Zeroed by the
  // caller before a row's first call; scores of tokens that no query sees are not touched.
  float* token_scores = nullptr;
  std::byte* prefix = nullptr;  // slots [0, prefix_slots), only read; null: there are none
  int64_t prefix_slots = 0;     // a multiple of kPrefixStep, at most num_past
};

// The chunk's tensors and heads, alike for every kind of attention.
struct AttentionTensors {
  const float* q = nullptr;  // [tokens, num_heads * head_dim], stride qkv_stride; not yet scaled
  const float* k = nullptr;  // [tokens, num_kv_heads * head_dim], stride qkv_stride
  const float* v = nullptr;
  int64_t qkv_stride = 0;
  float* out = nullptr;  // [tokens, num_heads * head_dim], stride out_stride
  int64_t out_stride = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads (grouped queries)
  int64_t head_dim = 0;      // any; 64, 80 and 128 are the fast ones
  float scale = 1.0F;        // q is multiplied by it in fp32
  // [num_heads]: a score more in the softmax of each query, which has no value; null: none. It
  // lowers the weights of the tokens.
  const float* sinks = nullptr;
  float soft_cap = 0.0F;  // scores become soft_cap * tanh(score / soft_cap); 0: they stay
  DType kv_dtype = DType::kF16;
  // 8 and 4: codes, as kernels/kv/kv_code.h defines them. kv_dtype is used where both are 16; the
  // 16 bits of one beside the other's codes are fp16.
  KvBits kv_bits = {};
  int64_t kv_block_fill = 0;  // bytes behind each block of a row's cache, and of its prefix
  // Of a rolling cache: keys come unturned, queries turned; what is read of a key is its turned
  // value, rounded to fp32.
  KeyTurns turns = {};
  // Of keys of 4 bits: keys come without the mean at their position, which is added to what is read
  // of them, in fp32. Beside turns: none.
  KeyMeans means = {};
};

struct AttentionArgs : AttentionTensors {
  std::span<const AttentionRow> rows;
  int64_t token_scores_stride = 0;  // at least the tokens of each row that has token_scores
  int64_t window = 0;               // tokens that a token sees, itself included; 0: all before it
};

// Bytes of workspace (64-byte aligned) for calls whose rows have no token_scores.
int64_t AttentionWorkspaceBytes(int64_t max_slots, int64_t head_dim, int num_threads, Isa isa);

// Bytes for calls with token_scores: as above, and for each thread the q k of 24 queries over
// max_slots.
int64_t AttentionWorkspaceBytesWithScores(int64_t max_slots, int64_t head_dim, int num_threads,
                                          Isa isa);

// Rounds the new tokens' K and V to kv_dtype or kv_bits, stores them in their slots, then attends:
// the token at position p of a row sees slots [0, p], with a window [p + 1 - window, p]. What is
// read is always the rounded cache: values of codes give the bits that a cache of fp32 with the
// codes' values would; keys of codes meet queries that are rounded themselves
// (kernels/kv/kv_code.h), unless there are turns. With turns the key in slot s is turned by row s,
// with means it gets the mean at position s. Token scores, where asked for, change no bit of `out`,
// and their own bits depend on the row only; a row and KV head is then one task. Requires:
// workspace as above. Allocates nothing.
void Attention(const AttentionArgs& args, std::span<std::byte> workspace, ThreadPool& pool,
               Isa isa);

// The oracle: stores K and V likewise, then plain softmax with double accumulation. Queries meet
// keys of codes rounded, as kernels/kv/kv_code.h says, or as they are, as on the GPU.
void AttentionRef(const AttentionArgs& args);
void AttentionRefUnrounded(const AttentionArgs& args);

}  // namespace spillway::kernels
