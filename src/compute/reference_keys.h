// ReferenceKeys: what a model's keys have in common, layer by layer, from one short prompt that is
// the same in every run: a direction, by which heads are reflected, or where positions rotate keys
// their mean before that. It depends on the model only, so that no row's bytes depend
// on the rows beside it, and a run that resumes finds it again. An executor takes the prompt
// through each layer before it computes the layer for the first time. This class holds the prompt,
// how far it has come, and the places of its buffers in the device's memory. Where the plan
// does neither none of it is needed. Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/head_reflection.h"
#include "kernels/attention/key_centre.h"
#include "spillway/plan.h"
#include "spillway/reference_prompt.h"
#include "src/device/packed_batch.h"  // TokenRange

namespace spillway {

class ReferenceKeys {
 public:
  // Bytes of the device's memory that it needs; 0: nothing is found.
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
  float* Hidden() const;  // [token, state], between layers
  // The prompt's row in a cache of its own, for `count` tokens from `begin` on.
  kernels::AttentionRow Row(int64_t begin, int64_t count) const;

  // Sums of the layer's keys, or of their directions: [num_kv_heads][head_dim].
  double* Common() const;
  // What was found of a decoder layer, reflectors or means: [num_kv_heads][head_dim].
  float* Found(int64_t decoder_layer) const;

  // Arguments that add the directions of the keys of `rows` tokens.
  kernels::KeyDirectionArgs KeyDirections(const kernels::AttentionTensors& tensors,
                                          int64_t rows) const;
  // Arguments that sum the keys of a part of the prompt, turned by these frequencies of the rope;
  // rows: 0 where all of them are left out, as the first token's key is, which is like no other.
  kernels::KeySumArgs KeySums(const kernels::AttentionTensors& tensors, const Rope& rope,
                              const float* frequencies, TokenRange tokens) const;
  // Arguments that make a layer's means from Common, once its keys are summed there.
  kernels::KeyMeanArgs MeanArgsOf(int64_t decoder_layer) const;

  // Arguments that make a block's reflectors from Common, once its keys are summed there.
  kernels::ReflectorArgs ReflectorArgsOf(int64_t decoder_layer) const;
  // Arguments that reflect the queries, and the keys, of `rows` tokens of qkv: [rows, q + k + v].
  std::array<kernels::HeadReflectionArgs, 2> Reflections(float* qkv, int64_t rows,
                                                         int64_t decoder_layer) const;

 private:
  const ModelShape& shape_;
  ReferenceBytes bytes_;
  std::byte* memory_;  // KV, states, sums, what was found
  int64_t next_layer_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
};

}  // namespace spillway
