// The smallest budgets within a loss: by hand, and against enumeration.
#include "policies/kv/kv_calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/trace_case.h"

namespace spillway {
namespace {

using Layers = std::vector<std::vector<BudgetLoss>>;

double Total(const Layers& layers, const std::vector<std::size_t>& chosen) {
  double total = 0.0;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    total += layers[layer][chosen[layer]].kept_frac;
  return total;
}

double Loss(const Layers& layers, const std::vector<std::size_t>& chosen) {
  double loss = 0.0;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    loss += std::max(0.0, layers[layer][chosen[layer]].loss);
  return loss;
}

// The smallest total of all combinations within the bound.
double Enumerated(const Layers& layers, double max_loss) {
  std::vector<std::size_t> chosen(layers.size(), 0);
  double best = 1e300;
  while (true) {
    if (Loss(layers, chosen) <= max_loss) best = std::min(best, Total(layers, chosen));
    std::size_t layer = 0;
    while (layer < layers.size() && ++chosen[layer] == layers[layer].size()) chosen[layer++] = 0;
    if (layer == layers.size()) return best;
  }
}

TEST(KvCalibration, GivesTheLossToTheLayersThatSaveMost) {
  const Layers layers = {{{0.1, 0.9}, {0.5, 0.5}, {1.0, 0.0}},
                         {{0.1, 0.0}, {1.0, 0.0}},
                         {{0.2, 0.4}, {0.6, 0.1}, {1.0, 0.0}}};
  EXPECT_EQ(SmallestBudgets(layers, 0.0), (std::vector<std::size_t>{2, 0, 2}));
  EXPECT_EQ(SmallestBudgets(layers, 0.45), (std::vector<std::size_t>{2, 0, 0}));
  EXPECT_EQ(SmallestBudgets(layers, 2.0), (std::vector<std::size_t>{0, 0, 0}));
}

TEST(KvCalibration, ALossBelowNothingIsNoCredit) {
  const Layers layers = {{{0.1, -5.0}, {1.0, 0.0}}, {{0.1, 1.0}, {1.0, 0.0}}};
  EXPECT_EQ(SmallestBudgets(layers, 0.5), (std::vector<std::size_t>{0, 1}));
}

TEST(KvCalibration, IsWithinTheBoundAndNearlyTheSmallest) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(CaseOf("round", round));
    Layers layers(1 + random() % 5);
    for (std::vector<BudgetLoss>& layer : layers) {
      for (const double kept : {0.05, 0.2, 0.5}) layer.push_back({kept, unit(random) - 0.1});
      layer.push_back({1.0, 0.0});
    }
    const double max_loss = unit(random);
    const auto chosen = SmallestBudgets(layers, max_loss);
    EXPECT_LE(Loss(layers, chosen), max_loss + 1e-12);
    // Rounding up spends at most a unit a layer.
    const double unit_loss = max_loss / 4096.0;
    EXPECT_GE(Total(layers, chosen), Enumerated(layers, max_loss) - 1e-9);
    EXPECT_LE(Total(layers, chosen),
              Enumerated(layers, max_loss - static_cast<double>(layers.size()) * unit_loss) + 1e-9);
  }
}

}  // namespace
}  // namespace spillway
