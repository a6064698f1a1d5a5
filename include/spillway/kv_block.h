// KV block: the unit in which a row's K and V are laid out, moved and checked.
// One layer's cache of a row is [slot / 8][K|V][kv_head][slot % 8][head_dim]: the newest tokens of
// all heads are one contiguous run, so that appending to KV on disk rewrites 8 slots and not the
// row. Eight: fewer would be written again less often, and leave less of a small budget unused, but
// attention would read memory in runs too short for the processor's prefetcher.
//
// Where tokens are evicted, a block is the same K and V, then its state: scores [kv_head][slot % 8]
// fp32, which every step changes, and positions [kv_head][slot % 8] int32, which it reads: apart,
// so that only half of the lines go back to memory. A slot then holds other tokens for other KV
// heads, in no order.
//
// Below 16 bits an element is a code, min + scale * code of its group of 64 along head_dim. K and V
// have bits of their own. Where either has codes, a block has 16 slots; a head's run of codes is
// [slot % 16][code bytes], and behind these [group][slot % 16]{min, scale} in fp16.
// kernels/kv/kv_code.h has the order of the codes.
#pragma once

#include <cstdint>

#include "spillway/round.h"

namespace spillway {

inline constexpr int64_t kKvBlockSlots = 8;  // of 16-bit elements
inline constexpr int64_t kKvCodedBlockSlots = 16;
inline constexpr int64_t kKvStateBytes = 8;  // of a slot and KV head: score and position
inline constexpr int64_t kKvGroup = 64;      // elements that share min and scale; the last: fewer
// Tokens that many rows begin with have places of their own in whole steps of so many slots: the
// attention kernels read no block, or tile, from two places.
inline constexpr int64_t kPrefixStep = 64;
// Positions that share a mean of keys, where these are centred (kernels/kv/key_means.h): in a full
// cache a block of codes.
inline constexpr int64_t kKeyMeanSpan = kKvCodedBlockSlots;
constexpr int64_t KeyMeanSpans(int64_t num_positions) {
  return DivideUp(num_positions, kKeyMeanSpan);
}
// Bytes from a token's group to group.
inline constexpr int64_t kKvRangeStride = kKvCodedBlockSlots * 4;

// Slots of a row's cache, one behind the other.
struct SlotRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const SlotRange&) const = default;
};

// Bits of an element of K, and of V: 16, or 8 or 4, which are codes.
struct KvBits {
  int key = 16;
  int value = 16;

  constexpr KvBits() = default;
  constexpr KvBits(int both) : key(both), value(both) {}  // one number sets both
  constexpr KvBits(int of_key, int of_value) : key(of_key), value(of_value) {}
  bool operator==(const KvBits&) const = default;

  constexpr bool coded() const { return key < 16 || value < 16; }  // one of them, or both
};

constexpr int64_t KvBlockSlots(KvBits bits) {
  return bits.coded() ? kKvCodedBlockSlots : kKvBlockSlots;
}

constexpr int64_t KvGroups(int64_t head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

// Bytes of one token's K, or V, of one KV head: its elements or codes, which are filled up to a
// multiple of 4 bytes, and its groups' min and scale.
constexpr int64_t KvCodeBytes(int64_t head_dim, int bits) {
  return bits == 16 ? 2 * head_dim : (head_dim * bits + 31) / 32 * 4;
}
constexpr int64_t KvRangeBytes(int64_t head_dim, int bits) {
  return bits == 16 ? 0 : 4 * KvGroups(head_dim);
}
constexpr int64_t KvTokenBytes(int64_t head_dim, int bits) {
  return KvCodeBytes(head_dim, bits) + KvRangeBytes(head_dim, bits);
}

// Bytes of one slot of one layer, all KV heads: the one place that knows how large a slot is.
constexpr int64_t KvSlotBytes(int64_t num_kv_heads, int64_t head_dim, KvBits bits = {}) {
  return num_kv_heads * (KvTokenBytes(head_dim, bits.key) + KvTokenBytes(head_dim, bits.value));
}
// Scores and positions of so many slots, all KV heads.
constexpr int64_t KvStateBytes(int64_t num_kv_heads, int64_t num_slots) {
  return num_slots * num_kv_heads * kKvStateBytes;
}
constexpr int64_t KvSlotBytesWithState(int64_t num_kv_heads, int64_t head_dim, KvBits bits = {}) {
  return KvSlotBytes(num_kv_heads, head_dim, bits) + KvStateBytes(num_kv_heads, 1);
}

// Bytes of a block; a multiple of 32. The next one begins kv_block_fill bytes behind it, which is a
// multiple of 32 too: not 0 where whole blocks make pages of the disk sooner that way.
constexpr int64_t KvBlockBytes(int64_t num_kv_heads, int64_t head_dim, KvBits bits = {}) {
  return KvBlockSlots(bits) * KvSlotBytes(num_kv_heads, head_dim, bits);
}
constexpr int64_t KvBlockBytesWithState(int64_t num_kv_heads, int64_t head_dim, KvBits bits = {}) {
  return KvBlockSlots(bits) * KvSlotBytesWithState(num_kv_heads, head_dim, bits);
}

}  // namespace spillway
