// KV block: the unit in which a row's K and V are laid out, moved and checked.
// One layer's cache of a row is [slot / 16][K|V][kv_head][slot % 16][head_dim]: the newest tokens
// of all heads are one contiguous run, so that appending to KV on disk rewrites 16 slots and not
// the row. Where tokens are evicted, a block is the same K and V, then its state: scores
// [kv_head][16] fp32, then positions [kv_head][16] int32. A slot then holds other tokens for other
// KV heads, in no order.
#pragma once

#include <cstdint>

namespace spillway {

inline constexpr int64_t kKvBlockSlots = 16;
inline constexpr int64_t kKvStateBytes = 8;  // of a slot and KV head: score and position

// Of one slot of one layer, all KV heads; elements of 16 bits.
constexpr int64_t KvSlotBytes(int64_t num_kv_heads, int64_t head_dim) {
  return 2 * num_kv_heads * head_dim * 2;
}
constexpr int64_t KvSlotBytesWithState(int64_t num_kv_heads, int64_t head_dim) {
  return KvSlotBytes(num_kv_heads, head_dim) + num_kv_heads * kKvStateBytes;
}

// From one block of a row to the next; a multiple of 64.
constexpr int64_t KvBlockBytes(int64_t num_kv_heads, int64_t head_dim) {
  return kKvBlockSlots * KvSlotBytes(num_kv_heads, head_dim);
}
constexpr int64_t KvBlockBytesWithState(int64_t num_kv_heads, int64_t head_dim) {
  return kKvBlockSlots * KvSlotBytesWithState(num_kv_heads, head_dim);
}

}  // namespace spillway
