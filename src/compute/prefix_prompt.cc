#include "src/compute/prefix_prompt.h"

#include <numeric>

namespace spillway {

PrefixPrompt::PrefixPrompt(const Plan& plan, const Arena& device)
    : plan_(plan), device_(device), positions_(plan.prefix.tokens.size()) {
  std::iota(positions_.begin(), positions_.end(), 0);
}

kernels::AttentionRow PrefixPrompt::Row(int64_t decoder_layer, int64_t begin, int64_t count) const {
  return {PrefixKv(plan_, device_, decoder_layer),    num_tokens(), begin, count, 0,
          PrefixScores(plan_, device_, decoder_layer)};
}

}  // namespace spillway
