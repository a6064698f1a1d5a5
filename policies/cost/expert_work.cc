#include "policies/cost/expert_work.h"

#include <cmath>

namespace spillway {

double ChosenShare(const ExpertShape& shape, const Experts& experts) {
  if (experts.first == shape.num) return 1.0;  // the shared one
  return static_cast<double>(shape.top_k) / static_cast<double>(shape.num);
}

ExpertLoad ExpertLoadOf(const ExpertShape& shape, const Experts& experts, int64_t num_tokens) {
  if (num_tokens == 0) return {};
  const double share = ChosenShare(shape, experts);
  const auto tokens = static_cast<double>(num_tokens);
  const double touched = 1.0 - std::pow(1.0 - share, tokens);
  return {touched * static_cast<double>(experts.experts.size()), tokens * share / touched};
}

}  // namespace spillway
