// ExpertLists: the tokens that their choices send to some experts, expert by expert, in the order
// of the tokens. Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/model.h"

namespace spillway {

// A token that waits for its experts.
struct GatheredToken {
  float* states = nullptr;        // as the device addresses them
  const float* choice = nullptr;  // its experts' numbers and weights (Buf::kChoice), for the host
};

// States of tokens, and the weight of an expert for each.
struct ExpertTokens {
  std::span<float* const> states;
  std::span<const float> weights;

  std::size_t size() const { return states.size(); }
  ExpertTokens Part(std::size_t begin, std::size_t count) const {
    return {states.subspan(begin, count), weights.subspan(begin, count)};
  }
};

class ExpertLists {
 public:
  // Takes up to so many tokens at a time, of a model with these experts, or none.
  ExpertLists(const ExpertShape& experts, int64_t max_tokens);

  // Sorts tokens by the experts [first, first + num_experts).
  struct Range {
    int64_t first = 0;
    int64_t num_experts = 0;
  };
  void Sort(std::span<const GatheredToken> tokens, const Range& range);

  // Tokens of all experts of the range, one expert's behind the other's. Lifetime: until the next
  // Sort.
  ExpertTokens All() const { return {states_, weights_}; }

  // Part of them, or of a copy elsewhere, that is an expert's, counted from the range's first.
  ExpertTokens Of(int64_t expert, const ExpertTokens& all) const {
    const auto at = static_cast<std::size_t>(expert);
    return all.Part(begins_[at], begins_[at + 1] - begins_[at]);
  }

 private:
  int64_t slots_;
  std::vector<float*> states_;
  std::vector<float> weights_;
  std::vector<std::size_t> begins_;
};

}  // namespace spillway
