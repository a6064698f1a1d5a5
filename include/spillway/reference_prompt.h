// The reference prompt: where keys are reflected or centred before the cache holds them, tokens of
// the program's own, the same in every run of a model, whose keys show what the model's keys have
// in common (src/compute/reference_keys.h). What memory they take, of the device that computes.
// Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/kv_block.h"
#include "spillway/model.h"
#include "spillway/round.h"

namespace spillway {

// A direction in common shows in 16 tokens as well as in 64. Means of rotated keys gain a little
// from more: with 4 bits, a divergence of 0.0197 nats in place of 0.0203 (SmolLM2).
constexpr int64_t ReferenceTokens(const ModelShape& shape) {
  return std::min<int64_t>(shape.rope.dims > 0 ? 64 : 16, shape.max_positions);
}

constexpr int64_t ReferenceSlots(const ModelShape& shape) {
  return RoundUp(ReferenceTokens(shape), kKvBlockSlots);
}

struct ReferenceBytes {
  int64_t kv = 0;      // of one layer, in 16 bits
  int64_t hidden = 0;  // fp32 [token, state]
  int64_t common = 0;  // fp64 [kv_head][head_dim], of one layer
  int64_t found = 0;   // fp32 [decoder layer][kv_head][head_dim]: reflectors, or means

  constexpr int64_t total() const { return kv + hidden + common + found; }
};

inline ReferenceBytes ReferenceBytesOf(const ModelShape& shape) {
  const int64_t width = shape.num_kv_heads * shape.head_dim;
  return {ReferenceSlots(shape) * KvSlotBytes(shape.num_kv_heads, shape.head_dim),
          RoundUp(ReferenceTokens(shape) * StateWidth(shape) * int64_t{sizeof(float)}, 16),
          width * int64_t{sizeof(double)}, shape.num_layers * width * int64_t{sizeof(float)}};
}

}  // namespace spillway
