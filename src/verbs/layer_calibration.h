// Budgets per layer: how much KV each layer needs, measured one layer at a time, then together.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "policies/kv/kv_calibration.h"

namespace spillway {

// The budgets that were chosen, one for each layer.
struct LayerBudgets {
  std::vector<double> kept_frac;
  double loss = 0.0;  // measured, all together

  double mean_frac() const;
};

struct LayerFindings {
  double full = 0.0;                            // mean negative log-probability with all KV
  std::vector<std::vector<BudgetLoss>> layers;  // of each layer alone
  LayerBudgets budgets;
};

// Mean negative log-probability of a token where layers keep these shares.
using MeasureLayers = std::function<double(const std::vector<double>& kept_frac)>;

// The smallest budgets found whose loss, all together, is at most `max_loss`.
LayerFindings FindLayerBudgets(int64_t num_layers, double max_loss, MeasureLayers measure);

// A line for each layer: its share, and what shares cost it alone.
std::string LayerTable(const LayerFindings& found);

}  // namespace spillway
