// ExpertGather: over how many batches the tokens of an expert are gathered before its products.
// Pure functions of values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/plan.h"
#include "spillway/reference_prompt.h"

namespace spillway {

// True where the states of all tokens stay in the device's memory: an expert then waits for all
// batches, and is multiplied once with the tokens of all. States that come and go with their batch
// are multiplied batch by batch.
inline bool GathersAllBatches(const Plan& plan) {
  return std::ranges::all_of(
      kAllTiers, [&](Tier tier) { return tier == plan.device() || plan.hidden[tier].size == 0; });
}

// Tokens of a pass that are gathered at once, at most.
inline int64_t MostGathered(const Plan& plan) {
  const int64_t of_a_batch = std::max(plan.batch.prompt_tokens, plan.batch.rows);
  const int64_t of_reference = plan.HasReference() ? ReferenceTokens(plan.shape) : 0;
  return of_reference + plan.prefix.num_tokens() +
         (GathersAllBatches(plan) ? of_a_batch * plan.num_batches : of_a_batch);
}

}  // namespace spillway
