// PrefixPrompt: the plan's prefix on its way through the layers. An executor takes it through each
// layer before it computes the layer for the first time, which the first batch's first pass does in
// order; its K and V stay for the rows of the run. Where the plan holds no prefix none of it is
// needed. Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "spillway/plan.h"
#include "src/memory/arena.h"

namespace spillway {

class PrefixPrompt {
 public:
  // `device` is the arena of plan.device(). Lifetime: plan and arena outlive this.
  PrefixPrompt(const Plan& plan, const Arena& device);

  int64_t num_tokens() const { return plan_.prefix.num_tokens(); }

  // True: this layer is the next one that the prefix has to go through.
  bool Awaits(int64_t layer) const { return layer == next_layer_ && num_tokens() > 0; }
  void Advance() { ++next_layer_; }

  std::span<const TokenId> tokens() const { return plan_.prefix.tokens; }
  std::span<const int32_t> positions() const { return positions_; }
  float* Hidden() const { return device_.As<float>(plan_.prefix.hidden); }  // [token, state]

  // The prefix as a row of its own, for `count` tokens from `begin` on.
  kernels::AttentionRow Row(int64_t decoder_layer, int64_t begin, int64_t count) const;

 private:
  const Plan& plan_;
  const Arena& device_;
  std::vector<int32_t> positions_;
  int64_t next_layer_ = 0;
};

// K and V of the prefix in a decoder layer. Requires: the plan holds one.
inline std::byte* PrefixKv(const Plan& plan, const Arena& device, int64_t decoder_layer) {
  return device.As<std::byte>(plan.prefix.kv) +
         decoder_layer * plan.prefix.num_tokens() * plan.PromptSlotBytes();
}
// Scores of its tokens there, [head][token]; null where the policy has none.
inline float* PrefixScores(const Plan& plan, const Arena& device, int64_t decoder_layer) {
  if (plan.prefix.scores.bytes == 0) return nullptr;
  return device.As<float>(plan.prefix.scores) +
         decoder_layer * plan.shape.num_heads * plan.prefix.num_tokens();
}

}  // namespace spillway
