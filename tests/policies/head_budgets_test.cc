#include "policies/kv/head_budgets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace spillway {
namespace {

double MeanOf(const std::vector<double>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
}

TEST(HeadBudgets, SharesAreAsTheRootsOfTheCosts) {
  EXPECT_EQ(SharesOfHeads({{1.0, 1.0}, {4.0, 1.0}, {9.0, 1.0}, {16.0, 1.0}}, 0.25),
            (std::vector<double>{0.1, 0.2, 0.3, 0.4}));
  EXPECT_EQ(SharesOfHeads({{1.0, 2.0}, {8.0, 2.0}}, 0.3), (std::vector<double>{0.2, 0.4}));
}

TEST(HeadBudgets, NoOtherSharesOfTheSameSumLoseLess) {
  const std::vector<HeadCost> costs = {{0.3, 1.0}, {1.7, 2.5}, {0.02, 1.3}, {5.0, 2.0}, {0.9, 3.0}};
  const auto loss_of = [&](const std::vector<double>& shares) {
    double loss = 0.0;
    for (std::size_t head = 0; head < costs.size(); ++head)
      loss += costs[head].coefficient * std::pow(shares[head], -costs[head].exponent);
    return loss;
  };
  const std::vector<double> best = SharesOfHeads(costs, 0.4);
  for (std::size_t from = 0; from < costs.size(); ++from) {
    for (std::size_t to = 0; to < costs.size(); ++to) {
      std::vector<double> other = best;
      if (from == to || other[from] < kLeastHeadShare + 0.01 || other[to] > 0.99) continue;
      other[from] -= 0.01;
      other[to] += 0.01;
      EXPECT_GE(loss_of(other), loss_of(best)) << from << " to " << to;
    }
  }
}

TEST(HeadBudgets, SharesStayBetweenTheLeastAndAll) {
  const std::vector<HeadCost> costs = {{0.0, 1.0}, {1e-9, 2.0}, {1.0, 1.0}, {1000.0, 2.0}};
  const std::vector<double> shares = SharesOfHeads(costs, 0.5);
  EXPECT_EQ(shares[0], kLeastHeadShare);
  EXPECT_EQ(shares[3], 1.0);
  EXPECT_NEAR(MeanOf(shares), 0.5, 0.001);
  EXPECT_EQ(SharesOfHeads(costs, 1.0), std::vector<double>(4, 1.0));
  EXPECT_EQ(SharesOfHeads(costs, kLeastHeadShare), std::vector<double>(4, kLeastHeadShare));
  EXPECT_EQ(SharesOfHeads({{0.0, 1.0}, {0.0, 1.0}}, 0.3), std::vector<double>(2, 0.3));
}

}  // namespace
}  // namespace spillway
