#include "src/compute/expert_lists.h"

#include <algorithm>
#include <numeric>

namespace spillway {

ExpertLists::ExpertLists(const ExpertShape& experts, int64_t max_tokens) : slots_(experts.slots()) {
  const auto most = static_cast<std::size_t>(max_tokens * slots_);
  states_.reserve(most);
  weights_.reserve(most);
  begins_.reserve(static_cast<std::size_t>(experts.num + 2));
}

void ExpertLists::Sort(std::span<const GatheredToken> tokens, const Range& range) {
  // Calls visit(expert, states, weight) with each choice of the range, token by token.
  const auto for_each = [&](const auto& visit) {
    for (const GatheredToken& token : tokens) {
      for (int64_t slot = 0; slot < slots_; ++slot) {
        const int64_t expert = static_cast<int64_t>(token.choice[slot]) - range.first;
        if (expert < 0 || expert >= range.num_experts) continue;
        visit(static_cast<std::size_t>(expert), token.states, token.choice[slots_ + slot]);
      }
    }
  };
  // Counts one place further on, sums to begins, and fills, which moves each begin to its end.
  begins_.assign(static_cast<std::size_t>(range.num_experts) + 1, 0);
  for_each([&](std::size_t expert, float*, float) { ++begins_[expert + 1]; });
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  states_.resize(begins_.back());
  weights_.resize(states_.size());
  for_each([&](std::size_t expert, float* states, float weight) {
    const std::size_t at = begins_[expert]++;
    states_[at] = states;
    weights_[at] = weight;
  });
  std::shift_right(begins_.begin(), begins_.end(), 1);
  begins_.front() = 0;
}

}  // namespace spillway
