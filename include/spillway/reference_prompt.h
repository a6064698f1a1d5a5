// The reference prompt: with KV below 16 bits, tokens of the program's own, the same in every run
// of a model, whose keys show what the model's keys have in common (src/compute/reference_keys.h).
// What memory they take, of the device that computes. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/kv_block.h"
#include "spillway/model.h"
#include "spillway/round.h"

namespace spillway {

// 64 tokens show no more.
constexpr int64_t ReferenceTokens(const ModelShape& shape) {
  return std::min<int64_t>(16, shape.max_positions);
}

constexpr int64_t ReferenceSlots(const ModelShape& shape) {
  return RoundUp(ReferenceTokens(shape), kKvBlockSlots);
}

struct ReferenceBytes {
  int64_t kv = 0;          // of one layer, in 16 bits
  int64_t hidden = 0;      // fp32 [token, hidden]
  int64_t common = 0;      // fp64 [kv_head][head_dim], of one layer
  int64_t reflectors = 0;  // fp32 [block][kv_head][head_dim]

  constexpr int64_t total() const { return kv + hidden + common + reflectors; }
};

constexpr ReferenceBytes ReferenceBytesOf(const ModelShape& shape) {
  const int64_t width = shape.num_kv_heads * shape.head_dim;
  return {ReferenceSlots(shape) * KvSlotBytes(shape.num_kv_heads, shape.head_dim),
          RoundUp(ReferenceTokens(shape) * shape.hidden_size * int64_t{sizeof(float)}, 16),
          width * int64_t{sizeof(double)}, shape.num_layers * width * int64_t{sizeof(float)}};
}

}  // namespace spillway
