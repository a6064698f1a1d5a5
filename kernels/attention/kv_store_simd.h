// New tokens' K and V into the cache, compiled once per instruction set, by attention_simd.h.
#pragma once

#include "kernels/attention/attention_isa.h"
#include "kernels/kv/kv_code_simd.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// Heads from the one that is stored to the one whose place is fetched meanwhile: a decode step
// stores a token of each head, in lines that no cache has.
constexpr int64_t kStoreAhead = 4;

// One token's K, or V.
template <DType kKv>
void StoreToken(const float* x, int64_t head_dim, std::byte* to) {
  for (int64_t d = 0; d < head_dim; d += Simd::kLanes) {
    const int64_t n = MinOf(Simd::kLanes, head_dim - d);
    // Whole registers where possible: the token is read again at once, and a load waits for a
    // masked store, not for a whole one.
    n == Simd::kLanes ? StoreAs<kKv>(to, d, Simd::Load(x + d))
                      : StorePartAs<kKv>(to, d, Simd::LoadPart(x + d, n), n);
  }
}

// Keys, or values, of a task's new tokens.
struct NewTokens {
  const AttentionTask& task;
  const float* from;     // the first token's
  std::byte* first_run;  // of the head in the first KV block of the row's own
  int64_t block_slots;

  template <DType kKv, int kBits>
  void Store() const {
    const AttentionRow& row = *task.row;
    const int64_t head_dim = task.args->head_dim;
    const int64_t code_bytes = KvCodeBytes(head_dim, kBits);
    for (int64_t token = 0; token < row.num_new; ++token) {
      const int64_t slot = row.num_past - row.prefix_slots + token;
      const int64_t in_block = slot % block_slots;
      std::byte* run = first_run + slot / block_slots * task.block_bytes;
      std::byte* to = run + in_block * code_bytes;
      const float* x = from + token * task.args->qkv_stride;
      if (row.num_new == 1 && task.kv_head + kStoreAhead < task.args->num_kv_heads) {
        const std::byte* ahead = run + kStoreAhead * block_slots * KvTokenBytes(head_dim, kBits);
        __builtin_prefetch(ahead + in_block * code_bytes, 1, 2);
        if (kBits < 16) __builtin_prefetch(ahead + block_slots * code_bytes + in_block * 4, 1, 2);
      }
      if constexpr (kBits < 16) {
        EncodeToken<kBits>(x, head_dim, to, run + block_slots * code_bytes + in_block * 4);
      } else {
        StoreToken<kKv>(x, head_dim, to);
      }
    }
  }
  void Store(int bits, DType dtype) const {
    if (bits == 8) return Store<DType::kF16, 8>();
    if (bits == 4) return Store<DType::kF16, 4>();
    dtype == DType::kF16 ? Store<DType::kF16, 16>() : Store<DType::kBF16, 16>();
  }
};

inline void StoreKvSimd(const AttentionTask& task) {
  const AttentionArgs& args = *task.args;
  const int64_t slots = KvBlockSlots(args.kv_bits);
  const DType dtype = args.kv_bits.coded() ? DType::kF16 : args.kv_dtype;
  const int64_t at = task.row->token_offset * args.qkv_stride + task.kv_head * args.head_dim;
  const int64_t key_run = slots * KvTokenBytes(args.head_dim, args.kv_bits.key);
  const int64_t value_run = slots * KvTokenBytes(args.head_dim, args.kv_bits.value);
  std::byte* keys = task.row->kv + task.kv_head * key_run;
  std::byte* values = task.row->kv + args.num_kv_heads * key_run + task.kv_head * value_run;
  NewTokens{task, args.k + at, keys, slots}.Store(args.kv_bits.key, dtype);
  NewTokens{task, args.v + at, values, slots}.Store(args.kv_bits.value, dtype);
}

}  // namespace
}  // namespace spillway::kernels
