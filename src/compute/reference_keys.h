// ReferenceKeys: the direction that a model's keys have in common, layer by layer, from one short
// prompt that is the same in every run. It depends on the model only, so that no row's bytes depend
// on the rows beside it, and a run that resumes finds it again. An executor takes the prompt
// through each layer before it computes the layer for the first time. This class holds the prompt,
// how far it has come, and the places of its buffers in the device's memory. Where the plan
// does not reflect heads (16 bits, rotated keys) none of it is needed. Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/head_reflection.h"
#include "spillway/plan.h"
#include "spillway/reference_prompt.h"

namespace spillway {

class ReferenceKeys {
 public:
  // Bytes of the device's memory that it needs; 0 with a cache of 16 bits.
  static int64_t Bytes(const Plan& plan);

  // `memory`: 64-byte aligned, of the device; zeros where Common lies. Lifetime: plan and memory
  // outlive this.
  ReferenceKeys(const Plan& plan, std::byte* memory);

  int64_t num_tokens() const { return std::ssize(tokens_); }

  // True: this layer is the next one that the prompt has to go through.
  bool Awaits(int64_t layer) const { return layer == next_layer_ && num_tokens() > 0; }
  void Advance() { ++next_layer_; }

  std::span<const TokenId> tokens() const { return tokens_; }
  std::span<const int32_t> positions() const { return positions_; }
  float* Hidden() const;  // [token, hidden], between layers
  // The prompt's row in a cache of its own, for `count` tokens from `begin` on.
  kernels::AttentionRow Row(int64_t begin, int64_t count) const;

  // The directions of the layer's keys, as kernels/attention/head_reflection.h sums them:
  // [num_kv_heads][head_dim].
  double* Common() const;
  // Reflectors of a decoder layer: [num_kv_heads][head_dim].
  float* Reflectors(int64_t decoder_layer) const;

  // Arguments that make a block's reflectors from Common, once its keys are summed there.
  kernels::ReflectorArgs ReflectorArgsOf(int64_t decoder_layer) const;
  // Arguments that reflect the queries, and the keys, of `rows` tokens of qkv: [rows, q + k + v].
  std::array<kernels::HeadReflectionArgs, 2> Reflections(float* qkv, int64_t rows,
                                                         int64_t decoder_layer) const;

 private:
  const ModelShape& shape_;
  ReferenceBytes bytes_;
  std::byte* memory_;  // KV, hidden states, directions, reflectors
  int64_t next_layer_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
};

}  // namespace spillway
