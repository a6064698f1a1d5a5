#include "src/verbs/layer_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace spillway {
namespace {

// Shares of a row that a layer may keep, and the one that is tried first.
constexpr std::array kShares = {0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.65};
constexpr std::size_t kFirstShare = 3;

// Losses of several layers do not quite add up: how often the sum that is allowed is corrected.
constexpr int kJointRounds = 6;

// Measures and chooses. Losses are of the mean log-probability per token.
class Calibration {
 public:
  Calibration(int64_t num_layers, double max_loss, MeasureLayers measure)
      : max_loss_(max_loss),
        measure_(std::move(measure)),
        whole_(static_cast<std::size_t>(num_layers), 1.0) {}

  LayerFindings Run() {
    full_ = measure_(whole_);
    for (std::size_t layer = 0; layer < whole_.size(); ++layer) layers_.push_back(Ladder(layer));
    return {full_, layers_, Join()};
  }

 private:
  double LossOf(const std::vector<double>& kept_frac) { return measure_(kept_frac) - full_; }

  double LossAlone(std::size_t layer, double kept_frac) {
    std::vector<double> shares = whole_;
    shares[layer] = kept_frac;
    return LossOf(shares);
  }

  // Up from the first share until the layer's loss is small beside its part of the bound; down
  // while the layer alone stays within it.
  std::vector<BudgetLoss> Ladder(std::size_t layer) {
    const double part = max_loss_ / static_cast<double>(2 * whole_.size());
    const double first = LossAlone(layer, kShares[kFirstShare]);
    std::vector<BudgetLoss> ladder = {{1.0, 0.0}, {kShares[kFirstShare], first}};
    for (std::size_t share = kFirstShare + 1; share < kShares.size(); ++share) {
      if (ladder.back().loss <= part) break;
      ladder.push_back({kShares[share], LossAlone(layer, kShares[share])});
    }
    for (std::size_t share = kFirstShare; first <= max_loss_ && share-- > 0;) {
      ladder.push_back({kShares[share], LossAlone(layer, kShares[share])});
      if (ladder.back().loss > max_loss_) break;
    }
    std::ranges::sort(ladder, {}, &BudgetLoss::kept_frac);
    return ladder;
  }

  std::vector<double> SharesOf(const std::vector<std::size_t>& chosen) const {
    std::vector<double> shares;
    for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
      shares.push_back(layers_[layer][chosen[layer]].kept_frac);
    }
    return shares;
  }

  // Bisects the sum of losses that layers may have alone, until all together are within the bound.
  LayerBudgets Join() {
    LayerBudgets best = {whole_, 0.0};
    std::map<std::vector<std::size_t>, double> measured;
    double low = 0.0;
    double high = 2.0 * max_loss_;
    for (int round = 0; round < kJointRounds; ++round) {
      const double allowed = (low + high) / 2.0;
      const std::vector<std::size_t> chosen = SmallestBudgets(layers_, allowed);
      const std::vector<double> shares = SharesOf(chosen);
      if (!measured.contains(chosen)) measured[chosen] = LossOf(shares);
      const LayerBudgets budgets = {shares, measured[chosen]};
      const bool fits = budgets.loss <= max_loss_;
      if (fits && budgets.mean_frac() < best.mean_frac()) best = budgets;
      (fits ? low : high) = allowed;
    }
    return best.mean_frac() < 1.0 ? best : Lift();
  }

  // Layers that lose nothing alone may lose together: all a step up, until they do not.
  LayerBudgets Lift() {
    std::vector<std::size_t> chosen = SmallestBudgets(layers_, 0.0);
    while (true) {
      for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
        chosen[layer] = std::min(chosen[layer] + 1, layers_[layer].size() - 1);
      }
      LayerBudgets budgets = {SharesOf(chosen), LossOf(SharesOf(chosen))};
      if (budgets.loss <= max_loss_ || budgets.mean_frac() == 1.0) return budgets;
    }
  }

  double max_loss_;
  MeasureLayers measure_;
  std::vector<double> whole_;
  double full_ = 0.0;
  std::vector<std::vector<BudgetLoss>> layers_;
};

}  // namespace

double LayerBudgets::mean_frac() const {
  double sum = 0.0;
  for (const double frac : kept_frac) sum += frac;
  return sum / static_cast<double>(kept_frac.size());
}

LayerFindings FindLayerBudgets(int64_t num_layers, double max_loss, MeasureLayers measure) {
  return Calibration(num_layers, max_loss, std::move(measure)).Run();
}

std::string LayerTable(const LayerFindings& found) {
  std::string text = "  layer   keeps   perplexity alone, by share kept\n";
  for (std::size_t layer = 0; layer < found.layers.size(); ++layer) {
    text += fmt::format("  {:>5}  {:>4.0f} %  ", layer, 100.0 * found.budgets.kept_frac[layer]);
    for (const BudgetLoss& at : found.layers[layer]) {
      if (at.kept_frac == 1.0) continue;
      text +=
          fmt::format(" {:.0f} %: {:+.2f} %", 100.0 * at.kept_frac, 100.0 * std::expm1(at.loss));
    }
    text += "\n";
  }
  return text;
}

}  // namespace spillway
