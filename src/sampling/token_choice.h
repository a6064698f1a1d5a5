// The arithmetic of choosing one token from a row of logits. Ties always go to the lower id, so
// that no result depends on an order of evaluation. Pure functions but for the scratch that they
// are given; any thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/sampling/request.h"

namespace spillway {

struct TokenLogit {
  TokenId token = 0;
  float logit = 0.0F;
};

// Memory of a choice that the next one uses again: one for each thread that chooses, not one for
// each row, since with thousands of rows 800 kB each would be gigabytes. What it holds between
// choices means nothing.
struct ChoiceScratch {
  std::vector<TokenLogit> candidates;
  std::vector<double> weights;
  std::vector<TokenId> kept;        // those that the weights are of
  std::vector<TokenId> next;        // those that lead on to a choice of the request
  std::vector<float> given_logits;  // as they were before a penalty changed them
};

// The largest logit's id. nullopt when no choice is sound: any NaN or +inf, or nothing over -inf.
// One pass at memory speed: this is all that a greedy row costs per step.
std::optional<TokenId> ArgMax(std::span<const float> logits);

// The `count` largest, descending (all of them when there are fewer), into `best`, whose memory is
// used again.
// Requires: no NaN.
void BestTokens(std::span<const float> logits, std::size_t count, std::vector<TokenLogit>& best);

// The `count` likeliest tokens, descending; `normaliser` is the LogSumExp of the logits.
// Requires: no NaN.
std::vector<TokenLogprob> Likeliest(std::span<const float> logits, int64_t count, double normaliser,
                                    ChoiceScratch& scratch);

// log(sum(exp(logits))), in double.
// Requires: `largest` is the largest logit and finite.
double LogSumExp(std::span<const float> logits, float largest);

// The token at `uniform` (in [0, 1)) of the distribution that `sampling` makes of the logits:
// softmax(logits / temperature), cut to the top_k largest, then to the smallest set of the most
// likely whose mass is at least top_p of what top_k left. The cumulative sum runs by id over the
// tokens that are kept.
// Requires: ArgMax(logits) == best; temperature > 0.
TokenId DrawToken(std::span<const float> logits, TokenId best, const Sampling& sampling,
                  double uniform, ChoiceScratch& scratch);

}  // namespace spillway
