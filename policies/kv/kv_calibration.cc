#include "policies/kv/kv_calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "spillway/error.h"

namespace spillway {
namespace {

// Loss in units of max_loss / kUnits, rounded up, so that a sum of units is never too low.
constexpr int64_t kUnits = 4096;
constexpr double kNever = std::numeric_limits<double>::infinity();

// More than kUnits: over the bound alone.
int64_t UnitsOf(double loss, double max_loss) {
  if (loss <= 0.0) return 0;
  if (loss > max_loss) return kUnits + 1;
  return static_cast<int64_t>(std::ceil(loss / max_loss * static_cast<double>(kUnits)));
}

}  // namespace

// A knapsack over layers: least[units] is the smallest total that spends at most so many.
std::vector<std::size_t> SmallestBudgets(const std::vector<std::vector<BudgetLoss>>& layers,
                                         double max_loss) {
  const auto width = static_cast<std::size_t>(kUnits + 1);
  std::vector<double> least(width, 0.0);
  std::vector<std::vector<std::size_t>> choice(layers.size(), std::vector<std::size_t>(width));
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    SPILLWAY_CHECK(!layers[layer].empty() && layers[layer].back().loss <= 0.0);
    std::vector<double> next(width, kNever);
    for (std::size_t index = 0; index < layers[layer].size(); ++index) {
      const BudgetLoss& budget = layers[layer][index];
      const int64_t units = UnitsOf(budget.loss, max_loss);
      for (int64_t spent = units; spent <= kUnits; ++spent) {
        const double total = least[static_cast<std::size_t>(spent - units)] + budget.kept_frac;
        const auto at = static_cast<std::size_t>(spent);
        if (total >= next[at]) continue;
        next[at] = total;
        choice[layer][at] = index;
      }
    }
    least = std::move(next);
  }
  std::vector<std::size_t> chosen(layers.size());
  int64_t left = kUnits;
  for (std::size_t layer = layers.size(); layer-- > 0;) {
    chosen[layer] = choice[layer][static_cast<std::size_t>(left)];
    left -= UnitsOf(layers[layer][chosen[layer]].loss, max_loss);
  }
  return chosen;
}

}  // namespace spillway
