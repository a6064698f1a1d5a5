// ReferenceKeys: what the keys of a model have in common, layer by layer, from one short prompt
// that is the same in every run. It is the model's, not the batch's, so that no row's bytes depend
// on the rows beside it, and a run that resumes finds it again. An executor sends the prompt
// through each layer before it computes that for the first time; nothing is left to do later. With
// a KV cache of 16 bits there is none. Its memory is what the plan counts for it. Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "spillway/plan.h"
#include "spillway/reference_prompt.h"
#include "src/memory/arena.h"

namespace spillway {

class ReferenceKeys {
 public:
  // Lifetime: the plan outlives this.
  explicit ReferenceKeys(const Plan& plan);

  int64_t num_tokens() const { return std::ssize(tokens_); }

  // Whether the prompt has yet to go through this layer, the next one on its way.
  bool Awaits(int64_t layer) const { return layer == next_layer_ && num_tokens() > 0; }

  // Of the tokens from `begin`.
  std::span<const TokenId> Tokens(int64_t begin, int64_t count) const;
  std::span<const int32_t> Positions(int64_t begin, int64_t count) const;
  float* Hidden(int64_t begin) const;  // [token, hidden], between layers
  kernels::AttentionRow Row(int64_t begin, int64_t count) const;

  // Keys of the layer's tokens, in their order: [count][num_kv_heads * head_dim], row stride
  // `stride`.
  void AddKeys(const float* keys, int64_t stride, int64_t count);
  // The prompt is through the layer; of attention its reflectors are then known.
  void Finish(const PlannedLayer& layer);

  // [num_kv_heads][head_dim], as kernels/head_reflection.h wants them.
  // Requires: the prompt is through the transformer block's attention.
  const float* Reflectors(int64_t block) const { return ReflectorsOf(block); }

 private:
  float* ReflectorsOf(int64_t block) const;

  const ModelShape& shape_;
  ReferenceBytes bytes_;
  HostArena memory_;  // KV, hidden states, reflectors
  int64_t next_layer_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<double> common_;  // [kv_head][head_dim]: sums of the layer's keys, each of length 1
};

}  // namespace spillway
