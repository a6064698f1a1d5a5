// Work of a model's experts as far as it can be told beforehand: a router that has learned to use
// all of its experts sends each token to any of them with about the same probability. Pure
// functions of values; any thread.
#pragma once

#include <cstdint>

#include "spillway/layer.h"
#include "spillway/model.h"

namespace spillway {

// Probability with which a token has one of the experts of the operation.
double ChosenShare(const ExpertShape& shape, const Experts& experts);

// Experts of the operation that at least one of so many tokens is expected to have, and the tokens
// that each of these has.
struct ExpertLoad {
  double touched = 0.0;
  double tokens = 0.0;
};
ExpertLoad ExpertLoadOf(const ExpertShape& shape, const Experts& experts, int64_t num_tokens);

}  // namespace spillway
