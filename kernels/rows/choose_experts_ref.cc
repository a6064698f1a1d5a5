#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/rows/choose_experts.h"

namespace spillway::kernels {

// Sorts all experts, and has its sums in double.
void ChooseExpertsRef(const ChooseExpertsArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* scores = args.scores + row * args.scores_stride;
    std::vector<int64_t> order(static_cast<std::size_t>(args.num_experts));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
    const bool of_all = args.weights == ChoiceWeights::kOfAll;
    double sum = 0.0;
    for (int64_t at = 0; at < (of_all ? args.num_experts : args.top_k); ++at)
      sum += std::exp(static_cast<double>(scores[order[static_cast<std::size_t>(at)]]));
    float* numbers = args.choice + row * args.choice_stride;
    float* weights = numbers + args.slots();
    for (int64_t slot = 0; slot < args.top_k; ++slot) {
      const int64_t expert = order[static_cast<std::size_t>(slot)];
      numbers[slot] = static_cast<float>(expert);
      weights[slot] = static_cast<float>(std::exp(static_cast<double>(scores[expert])) / sum);
    }
    if (!args.shared) continue;
    numbers[args.top_k] = static_cast<float>(args.num_experts);
    weights[args.top_k] =
        static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(scores[args.num_experts]))));
  }
}

}  // namespace spillway::kernels
