#include "src/verbs/head_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "policies/kv/head_budgets.h"
#include "spillway/error.h"
#include "src/base/standard_error.h"

namespace spillway {
namespace {

// Settings of all heads that are measured in search of the smallest one.
constexpr int kJointRounds = 7;

// exp(difference) - 1 - difference is never negative, and its mean over tokens drawn from `full` is
// KL(full || other), with far less scatter than the mean of the differences (J. Schulman,
// "Approximating KL divergence", 2020). A text's tokens are not drawn from the model: the bound
// keeps one that it thought impossible from deciding alone.
double DivergenceOf(double difference) {
  constexpr double kMost = 3.0;
  const double bounded = std::clamp(difference, -kMost, kMost);
  return std::expm1(bounded) - bounded;
}

class Calibration {
 public:
  explicit Calibration(const HeadCalibrationJob& job) : job_(job), whole_(EvenShares(job, 1.0)) {}

  std::vector<double> MeasureHeads() const {
    const std::vector<KvLess> places = PlacesAlone();
    std::vector<double> costs = job_.known_costs;
    while (std::ssize(costs) < NumCosts(job_)) {
      const auto window = static_cast<int64_t>(costs.size() / places.size());
      std::optional<std::vector<float>> full;
      job_.measure_less(
          window, std::span(places).subspan(costs.size() % places.size()),
          [&](const std::vector<float>& of_window) {
            if (!full) {
              full = of_window;
              return;
            }
            costs.push_back(LossOf(WindowSet::kOneHead, {*full}, {of_window}).divergence);
            job_.note_costs(costs);
          });
    }
    return costs;
  }

  HeadFindings Run() {
    costs_ = MeanCosts();
    for (const WindowSet set : job_.joint_sets) full_[set] = job_.reference(set);
    HeadFindings found;
    found.costs = Shaped(costs_);
    for (std::size_t layer = 0; layer < whole_.size(); ++layer)
      found.exponents.push_back(ExponentOf(layer));
    job_.sizes.empty() ? Search(found) : TrySizes(found);
    return found;
  }

 private:
  std::size_t num_heads() const { return whole_.size() * whole_.front().size(); }

  // All but one head, or but the heads of one layer, keep everything.
  std::vector<KvLess> PlacesAlone() const {
    std::vector<KvLess> places;
    for (int64_t layer = 0; layer < job_.num_layers; ++layer) {
      for (int64_t head = 0; head < job_.num_kv_heads; ++head)
        places.push_back({layer, head, kAloneShare});
    }
    for (int64_t layer = 0; layer < job_.num_layers; ++layer)
      places.push_back({layer, -1, kLayerShare});
    return places;
  }

  // Over the windows, which score as many tokens each.
  std::vector<double> MeanCosts() const {
    std::vector<double> costs(static_cast<std::size_t>(NumPlaces(job_)));
    for (std::size_t at = 0; at < job_.known_costs.size(); ++at)
      costs[at % costs.size()] += job_.known_costs[at] / static_cast<double>(job_.num_windows);
    return costs;
  }

  // How fast the losses of a layer's heads fall: with what they lose in sum, each alone, and what
  // they lose together with more. Where little is lost the quotient is noise, hence the bounds.
  double ExponentOf(std::size_t layer) const {
    double alone = 0.0;
    for (std::size_t head = 0; head < whole_.front().size(); ++head)
      alone += costs_[layer * whole_.front().size() + head];
    const double together = costs_[num_heads() + layer];
    constexpr double kLeast = 1.0;
    constexpr double kMost = 3.0;
    if (together <= 0.0 || alone <= 0.0) return kMost;
    return std::clamp(std::log(alone / together) / std::log(kLayerShare / kAloneShare), kLeast,
                      kMost);
  }

  // One row of the model's heads -> [layer][kv_head].
  HeadShares Shaped(const std::vector<double>& values) const {
    HeadShares shaped = whole_;
    auto next = values.begin();
    for (std::vector<double>& heads : shaped) {
      for (double& head : heads) head = *next++;
    }
    return shaped;
  }

  HeadShares SharesAt(double mean_share) const {
    std::vector<HeadCost> costs;
    for (std::size_t head = 0; head < num_heads(); ++head) {
      const double exponent = ExponentOf(head / whole_.front().size());
      costs.push_back({costs_[head] * std::pow(kAloneShare, exponent), exponent});
    }
    return Shaped(SharesOfHeads(costs, mean_share));
  }

  // The largest mean share, to a thousandth of it, whose shares take no more.
  HeadShares SharesWithin(double most_bytes) const {
    if (job_.bytes(whole_) <= most_bytes) return whole_;
    HeadShares best = EvenShares(job_, kLeastHeadShare);
    double low = std::log(kLeastHeadShare);
    double high = 0.0;
    for (int step = 0; step < 12; ++step) {
      const double middle = (low + high) / 2.0;
      HeadShares shares = SharesAt(std::exp(middle));
      const bool fits = job_.bytes(shares) <= most_bytes;
      if (fits) best = std::move(shares);
      (fits ? low : high) = middle;
    }
    return best;
  }

  JointLoss Together(const HeadShares& shares) const {
    JointLoss joint;
    joint.shares = shares;
    joint.kv_bits = job_.kv_bits;
    joint.bytes = job_.bytes(shares);
    for (const WindowSet set : job_.joint_sets)
      joint.sets.push_back(LossOf(set, full_.at(set), job_.measure(shares, set)));
    return joint;
  }

  void TrySizes(HeadFindings& found) const {
    for (const double size : job_.sizes) {
      const HeadShares shares = SharesWithin(size);
      if (!found.tried.empty() && found.tried.back().shares == shares) continue;  // all tokens
      found.tried.push_back(Together(shares));
      if (found.tried.back().worst() > job_.most_useful_loss) break;
    }
    const JointLoss* least = LeastWithin(found.tried, job_.max_loss);
    found.joint = least != nullptr ? *least : found.tried.front();
    std::ranges::reverse(found.tried);
  }

  // Bisects the mean share's logarithm. Whole rows are kept where nothing less is within the bound.
  void Search(HeadFindings& found) const {
    double low = std::log(kLeastHeadShare);
    double high = 0.0;
    for (int round = 0; round < kJointRounds; ++round) {
      const double middle = (low + high) / 2.0;
      JointLoss joint = Together(SharesAt(std::exp(middle)));
      const bool fits = joint.worst() <= job_.max_loss;
      if (fits) found.joint = joint;
      found.tried.push_back(std::move(joint));
      (fits ? high : low) = middle;
    }
    if (found.joint.sets.empty()) {
      found.joint = Together(whole_);
      found.tried.push_back(found.joint);
    }
    std::ranges::sort(found.tried, {}, &JointLoss::mean_share);
  }

  const HeadCalibrationJob& job_;
  HeadShares whole_;
  std::vector<double> costs_;  // in the mean: one head after the other, then the layers
  std::map<WindowSet, WindowLogprobs> full_;
};

}  // namespace

double JointLoss::mean_share() const {
  double sum = 0.0;
  for (const std::vector<double>& heads : shares) {
    for (const double share : heads) sum += share;
  }
  return sum / static_cast<double>(shares.size() * shares.front().size());
}

double JointLoss::worst() const {
  double worst = 0.0;
  for (const SetLoss& set : sets) worst = std::max({worst, set.loss, set.divergence});
  return worst;
}

SetLoss LossOf(WindowSet set, const WindowLogprobs& full, const WindowLogprobs& other) {
  SetLoss found;
  found.set = set;
  std::vector<double> of_windows;
  for (std::size_t window = 0; window < full.size(); ++window) {
    SPILLWAY_CHECK(full[window].size() == other[window].size());
    double lost = 0.0;
    for (std::size_t token = 0; token < full[window].size(); ++token) {
      const double difference = static_cast<double>(other[window][token]) - full[window][token];
      found.full -= full[window][token];
      found.divergence += DivergenceOf(difference);
      lost -= difference;
    }
    found.loss += lost;
    found.num_tokens += std::ssize(full[window]);
    of_windows.push_back(lost / static_cast<double>(full[window].size()));
  }
  const auto count = static_cast<double>(found.num_tokens);
  found.full /= count;
  found.divergence /= count;
  found.loss /= count;
  found.loss_error = StandardError(of_windows, found.loss);
  return found;
}

std::vector<double> CostsOfHeads(const HeadCalibrationJob& job) {
  return Calibration(job).MeasureHeads();
}

HeadFindings FindHeadBudgets(const HeadCalibrationJob& job) { return Calibration(job).Run(); }

int64_t NumJointSettings(const HeadCalibrationJob& job) {
  return job.sizes.empty() ? kJointRounds : std::ssize(job.sizes);
}

const JointLoss* LeastWithin(const std::vector<JointLoss>& tried, double max_loss) {
  const JointLoss* least = nullptr;
  for (const JointLoss& joint : tried) {
    if (joint.worst() > max_loss) continue;
    if (least == nullptr || joint.bytes < least->bytes) least = &joint;
  }
  return least;
}

HeadShares EvenShares(const HeadCalibrationJob& job, double share) {
  return HeadShares(static_cast<std::size_t>(job.num_layers),
                    std::vector<double>(static_cast<std::size_t>(job.num_kv_heads), share));
}

int64_t NumPlaces(const HeadCalibrationJob& job) { return job.num_layers * (job.num_kv_heads + 1); }

int64_t NumCosts(const HeadCalibrationJob& job) { return job.num_windows * NumPlaces(job); }

std::string HeadTable(const HeadFindings& found) {
  std::string text = "  layer   share of a row's tokens that each KV head keeps, in %\n";
  for (std::size_t layer = 0; layer < found.joint.shares.size(); ++layer) {
    text += fmt::format("  {:>5} ", layer);
    for (const double share : found.joint.shares[layer])
      text += fmt::format(" {:>5.1f}", 100.0 * share);
    text += "\n";
  }
  return text;
}

}  // namespace spillway
