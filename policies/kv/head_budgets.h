// Budgets of KV heads: how a total is shared among them. Pure functions of values; any thread.
#pragma once

#include <vector>

namespace spillway {

// The least share of a row's tokens that a KV head keeps.
inline constexpr double kLeastHeadShare = 0.02;

// What a KV head loses that keeps a share s of a row's tokens: coefficient / s^exponent.
struct HeadCost {
  double coefficient = 0.0;
  double exponent = 1.0;
};

// Share of a row's tokens that each KV head keeps, `mean_share` of them in the mean, so that the
// losses sum to least. In whole thousandths, which may move the mean by as much.
// Requires: no coefficient is negative, no exponent below 0.1; kLeastHeadShare <= mean_share <= 1.
std::vector<double> SharesOfHeads(const std::vector<HeadCost>& costs, double mean_share);

}  // namespace spillway
