// KvHead: where one KV head's tokens lie in a row's cache of one layer, as spillway/kv_block.h lays
// it out. A view: it owns nothing. Any thread. Not for the files of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/kv_block.h"

namespace spillway::kernels {

template <typename Byte>  // std::byte or const std::byte
struct KvHead {
  Byte* kv;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t kv_head;
  int64_t block_bytes;  // KvBlockBytes, or KvBlockBytesWithState

  Byte* Block(int64_t slot) const { return kv + slot / kKvBlockSlots * block_bytes; }
  Byte* Key(int64_t slot) const { return Element(slot, kv_head); }
  Byte* Value(int64_t slot) const { return Element(slot, num_kv_heads + kv_head); }
  int64_t TokenBytes() const { return head_dim * 2; }  // of a key, or of a value

  // With state only.
  auto Score(int64_t slot) const { return State<float>(slot, kv_head); }
  auto Position(int64_t slot) const { return State<int32_t>(slot, num_kv_heads + kv_head); }

 private:
  // `head` counts those of K, then those of V.
  Byte* Element(int64_t slot, int64_t head) const {
    return Block(slot) + (head * kKvBlockSlots + slot % kKvBlockSlots) * TokenBytes();
  }
  // `head` counts those of the scores, then those of the positions.
  template <typename T>
  T* State(int64_t slot, int64_t head) const {
    return reinterpret_cast<T*>(Block(slot) + KvBlockBytes(num_kv_heads, head_dim)) +
           head * kKvBlockSlots + slot % kKvBlockSlots;
  }
};

}  // namespace spillway::kernels
