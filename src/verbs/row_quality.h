// RowQuality: how far two runs along the same tokens agree on a row, and the receipt of many rows.
// Plain values and functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/quality.h"
#include "src/sampling/request.h"  // StepLogprobs

namespace spillway {

// Lengths of a row's two answers, in tokens.
struct LengthPair {
  int64_t full = 0;
  int64_t own = 0;
};

struct RowQuality {
  int64_t num_steps = 0;              // that were compared; 0: none
  int64_t num_same = 0;               // of them, with the same likeliest token
  double divergence = 0.0;            // sum over them, in nats
  std::optional<LengthPair> lengths;  // nullopt: not both are known
};

// The least KL(full || own) in nats that one step's lists allow: a token that is not in own's has
// at most the probability of the last one there, and tokens in neither list count as one. Never
// negative. Requires: both lists descend and have a token.
double StepDivergence(const StepLogprobs& full, const StepLogprobs& own);

// Lengths are left out. Requires: as many steps of both.
RowQuality CompareSteps(const std::vector<StepLogprobs>& full,
                        const std::vector<StepLogprobs>& own);

// nullopt: no step was compared. Its seconds are not set.
std::optional<QualityReceipt> ReceiptOf(const std::vector<RowQuality>& rows);

}  // namespace spillway
