// KvHead: where one KV head's tokens lie in a row's cache of one layer, as spillway/kv_block.h lays
// it out. A view: it owns nothing. Any thread. Not for the files of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "spillway/kv_block.h"

namespace spillway::kernels {

template <typename Byte>  // std::byte or const std::byte
struct KvHead {
  Byte* kv;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t kv_head;
  int64_t block_bytes;  // KvBlockBytes, or KvBlockBytesWithState
  int bits = 16;

  int64_t block_slots() const { return KvBlockSlots(bits); }
  Byte* Block(int64_t slot) const { return kv + slot / block_slots() * block_bytes; }
  // A token's elements or codes.
  Byte* Key(int64_t slot) const { return Codes(slot, kv_head); }
  Byte* Value(int64_t slot) const { return Codes(slot, num_kv_heads + kv_head); }
  int64_t TokenBytes() const { return KvCodeBytes(head_dim, bits); }  // of a key, or of a value
  // {min, scale} of its first group, the others kKvRangeStride apart; below 16 bits only.
  Byte* KeyRanges(int64_t slot) const { return Ranges(slot, kv_head); }
  Byte* ValueRanges(int64_t slot) const { return Ranges(slot, num_kv_heads + kv_head); }
  int64_t NumRanges() const { return bits == 16 ? 0 : KvGroups(head_dim); }

  // State of a token. Requires: a cache with state.
  auto Score(int64_t slot) const { return State<float>(slot, kv_head); }
  auto Position(int64_t slot) const { return State<int32_t>(slot, num_kv_heads + kv_head); }

 private:
  // One head's K or V in the block of `slot`. `head` counts those of K, then those of V.
  Byte* Run(int64_t slot, int64_t head) const {
    return Block(slot) + head * block_slots() * KvTokenBytes(head_dim, bits);
  }
  Byte* Codes(int64_t slot, int64_t head) const {
    return Run(slot, head) + slot % block_slots() * TokenBytes();
  }
  Byte* Ranges(int64_t slot, int64_t head) const {
    return Run(slot, head) + block_slots() * TokenBytes() + slot % block_slots() * 4;
  }
  // `run` counts the scores of each head, then the positions of each.
  template <typename T>
  T* State(int64_t slot, int64_t run) const {
    return reinterpret_cast<T*>(Block(slot) + KvBlockBytes(num_kv_heads, head_dim, bits)) +
           run * block_slots() + slot % block_slots();
  }
};

// K and V of the token in from_slot to to_slot, as they are stored; no state.
// Requires: head_dim and bits are the same.
template <typename Byte>
void CopyToken(const KvHead<Byte>& from, int64_t from_slot, const KvHead<std::byte>& to,
               int64_t to_slot) {
  const auto codes = static_cast<std::size_t>(to.TokenBytes());
  std::memcpy(to.Key(to_slot), from.Key(from_slot), codes);
  std::memcpy(to.Value(to_slot), from.Value(from_slot), codes);
  for (int64_t group = 0; group < to.NumRanges(); ++group) {
    const int64_t at = group * kKvRangeStride;
    std::memcpy(to.KeyRanges(to_slot) + at, from.KeyRanges(from_slot) + at, 4);
    std::memcpy(to.ValueRanges(to_slot) + at, from.ValueRanges(from_slot) + at, 4);
  }
}

}  // namespace spillway::kernels
