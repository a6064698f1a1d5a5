// KV calibration: how much KV each layer keeps, so that the loss stays within a bound and the total
// is smallest. Pure functions of values; any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace spillway {

// Cost of keeping this share of a row's tokens in one layer while all others keep everything: mean
// log-probability lost per token.
struct BudgetLoss {
  double kept_frac = 1.0;
  double loss = 0.0;
};

// Index of the chosen budget for each layer: the smallest sum of kept_frac whose losses sum to at
// most `max_loss`, rounded up to a 4096th of it each; negative losses count as none.
// Requires: each layer's last choice has no loss; max_loss >= 0.
std::vector<std::size_t> SmallestBudgets(const std::vector<std::vector<BudgetLoss>>& layers,
                                         double max_loss);

}  // namespace spillway
