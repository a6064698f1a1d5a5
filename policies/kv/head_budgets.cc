#include "policies/kv/head_budgets.h"

#include <algorithm>
#include <cmath>

#include "spillway/error.h"

namespace spillway {
namespace {

// The share at which one more token would lower the loss by as much in each head: by `gain`.
double ShareAt(const HeadCost& cost, double gain) {
  const double share =
      std::pow(cost.exponent * cost.coefficient / gain, 1.0 / (cost.exponent + 1.0));
  return std::clamp(share, kLeastHeadShare, 1.0);
}

double MeanAt(const std::vector<HeadCost>& costs, double gain) {
  double sum = 0.0;
  for (const HeadCost& cost : costs) sum += ShareAt(cost, gain);
  return sum / static_cast<double>(costs.size());
}

// Costs beside the highest one. A head that costs nothing is among those that cost least.
std::vector<HeadCost> Relative(std::vector<HeadCost> costs) {
  double highest = 0.0;
  for (const HeadCost& cost : costs) {
    SPILLWAY_CHECK(cost.coefficient >= 0.0 && cost.exponent >= 0.1);
    highest = std::max(highest, cost.coefficient);
  }
  for (HeadCost& cost : costs)
    cost.coefficient = highest == 0.0 ? 1.0 : std::max(cost.coefficient / highest, 1e-12);
  return costs;
}

}  // namespace

std::vector<double> SharesOfHeads(const std::vector<HeadCost>& costs, double mean_share) {
  SPILLWAY_CHECK(!costs.empty() && mean_share >= kLeastHeadShare && mean_share <= 1.0);
  const std::vector<HeadCost> relative = Relative(costs);
  double low = -60.0;  // logarithm of a gain at which every head keeps everything
  double high = 60.0;  // at which none keeps more than the least
  for (int step = 0; step < 100; ++step) {
    const double middle = (low + high) / 2.0;
    (MeanAt(relative, std::exp(middle)) < mean_share ? high : low) = middle;
  }
  std::vector<double> shares;
  for (const HeadCost& cost : relative)
    shares.push_back(std::round(ShareAt(cost, std::exp(low)) * 1000.0) / 1000.0);
  return shares;
}

}  // namespace spillway
