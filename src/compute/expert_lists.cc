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

void ExpertLists::Sort(std::span<float* const> states, int64_t choice_column, const Range& range) {
  // Calls visit(expert, states, weight) with each choice of the range, token by token.
  const auto for_each = [&](const auto& visit) {
    for (float* token : states) {
      const float* numbers = token + choice_column;
      for (int64_t slot = 0; slot < slots_; ++slot) {
        const int64_t expert = static_cast<int64_t>(numbers[slot]) - range.first;
        if (expert >= 0 && expert < range.num_experts) visit(expert, token, numbers[slots_ + slot]);
      }
    }
  };
  // Counts one place further on, sums to begins, and fills, which moves each begin to its end.
  begins_.assign(static_cast<std::size_t>(range.num_experts) + 1, 0);
  for_each([&](int64_t expert, float*, float) { ++begins_[static_cast<std::size_t>(expert) + 1]; });
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  states_.resize(static_cast<std::size_t>(begins_.back()));
  weights_.resize(states_.size());
  for_each([&](int64_t expert, float* token, float weight) {
    const auto at = static_cast<std::size_t>(begins_[static_cast<std::size_t>(expert)]++);
    states_[at] = token;
    weights_[at] = weight;
  });
  std::shift_right(begins_.begin(), begins_.end(), 1);
  begins_.front() = 0;
}

}  // namespace spillway
