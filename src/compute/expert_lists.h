// ExpertLists: the tokens that their choices send to some experts, expert by expert, in the order
// of the tokens. Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/model.h"

namespace spillway {

class ExpertLists {
 public:
  // Takes up to so many tokens at a time, of a model with these experts, or none.
  ExpertLists(const ExpertShape& experts, int64_t max_tokens);

  // Sorts tokens, whose states these are and whose choices (Buf::kChoice) are in a column of them,
  // by the experts [first, first + num_experts).
  struct Range {
    int64_t first = 0;
    int64_t num_experts = 0;
  };
  void Sort(std::span<float* const> states, int64_t choice_column, const Range& range);

  // States of an expert's tokens, counted from the first of the range, and their weights.
  std::span<float* const> States(int64_t expert) const { return PartOf(states_, expert); }
  std::span<const float> Weights(int64_t expert) const { return PartOf(weights_, expert); }

 private:
  template <typename T>
  std::span<const T> PartOf(const std::vector<T>& all, int64_t expert) const {
    const auto begin = static_cast<std::size_t>(begins_[static_cast<std::size_t>(expert)]);
    const auto end = static_cast<std::size_t>(begins_[static_cast<std::size_t>(expert) + 1]);
    return std::span(all).subspan(begin, end - begin);
  }

  int64_t slots_;
  std::vector<float*> states_;
  std::vector<float> weights_;
  std::vector<int64_t> begins_;
};

}  // namespace spillway
