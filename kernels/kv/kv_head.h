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
  int64_t block_bytes;  // from one block to the next
  KvBits bits = {};

  int64_t block_slots() const { return KvBlockSlots(bits); }
  Byte* Block(int64_t slot) const { return kv + slot / block_slots() * block_bytes; }
  // A token's elements or codes.
  Byte* Key(int64_t slot) const { return Codes(KeyRun(slot), slot, bits.key); }
  Byte* Value(int64_t slot) const { return Codes(ValueRun(slot), slot, bits.value); }
  int64_t KeyBytes() const { return KvCodeBytes(head_dim, bits.key); }
  int64_t ValueBytes() const { return KvCodeBytes(head_dim, bits.value); }
  // {min, scale} of its first group, the others kKvRangeStride apart; below 16 bits only.
  Byte* KeyRanges(int64_t slot) const { return Ranges(KeyRun(slot), slot, bits.key); }
  Byte* ValueRanges(int64_t slot) const { return Ranges(ValueRun(slot), slot, bits.value); }
  int64_t NumKeyRanges() const { return bits.key == 16 ? 0 : KvGroups(head_dim); }
  int64_t NumValueRanges() const { return bits.value == 16 ? 0 : KvGroups(head_dim); }

  // State of a token. Requires: a cache with state.
  auto Score(int64_t slot) const { return State<float>(slot, kv_head); }
  auto Position(int64_t slot) const { return State<int32_t>(slot, num_kv_heads + kv_head); }

 private:
  // The head's keys, or values, in the block of `slot`.
  Byte* KeyRun(int64_t slot) const {
    return Block(slot) + kv_head * block_slots() * KvTokenBytes(head_dim, bits.key);
  }
  Byte* ValueRun(int64_t slot) const {
    return Block(slot) + num_kv_heads * block_slots() * KvTokenBytes(head_dim, bits.key) +
           kv_head * block_slots() * KvTokenBytes(head_dim, bits.value);
  }
  Byte* Codes(Byte* run, int64_t slot, int of_bits) const {
    return run + slot % block_slots() * KvCodeBytes(head_dim, of_bits);
  }
  Byte* Ranges(Byte* run, int64_t slot, int of_bits) const {
    return run + block_slots() * KvCodeBytes(head_dim, of_bits) + slot % block_slots() * 4;
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
  std::memcpy(to.Key(to_slot), from.Key(from_slot), static_cast<std::size_t>(to.KeyBytes()));
  std::memcpy(to.Value(to_slot), from.Value(from_slot), static_cast<std::size_t>(to.ValueBytes()));
  for (int64_t at = 0; at < to.NumKeyRanges() * kKvRangeStride; at += kKvRangeStride)
    std::memcpy(to.KeyRanges(to_slot) + at, from.KeyRanges(from_slot) + at, 4);
  for (int64_t at = 0; at < to.NumValueRanges() * kKvRangeStride; at += kKvRangeStride)
    std::memcpy(to.ValueRanges(to_slot) + at, from.ValueRanges(from_slot) + at, 4);
}

}  // namespace spillway::kernels
