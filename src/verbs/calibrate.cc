#include "src/verbs/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "policies/kv/kv_calibration.h"
#include "spillway/error.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/formats/kv_policy_json.h"
#include "src/formats/policy_file.h"
#include "src/report/progress.h"
#include "src/run/supervisor.h"
#include "src/verbs/choose_policy.h"
#include "src/verbs/model_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/prepare.h"
#include "src/verbs/window_job.h"

namespace spillway {
namespace {

constexpr int64_t kWindow = 640;
constexpr int64_t kSample = 16;  // windows

// Shares of a row that a layer may keep, and the one that is tried first.
constexpr std::array kShares = {0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.65};
constexpr std::size_t kFirstShare = 3;

// Losses of several layers do not quite add up: how often the sum that is allowed is corrected.
constexpr int kJointRounds = 6;

// The middle parts of windows are told token by token, so that budgets act on them as on generated
// tokens; their first halves are the prompts.
std::vector<TextWindow> SampleWindows(const Config& config, const ModelShape& shape,
                                      int64_t num_tokens) {
  const int64_t window =
      config.window.value_or(std::min({kWindow, shape.max_positions, num_tokens}));
  if (window > shape.max_positions || window > num_tokens) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--window {}: the text has {} tokens and {} {} positions; give at most "
                            "the smaller number",
                            window, num_tokens, Printable(shape.name), shape.max_positions));
  }
  const int64_t prompt = config.prefill.value_or(window / 2);
  if (prompt >= window) {
    throw Error(
        ErrorCode::kFlag,
        fmt::format("--prefill {}: leaves nothing of a window of {} to score", prompt, window));
  }
  const int64_t count =
      std::clamp<int64_t>(num_tokens / window, 1, config.sample.value_or(kSample));
  std::vector<TextWindow> windows;
  for (int64_t index = 0; index < count; ++index) {
    const int64_t begin = count == 1 ? 0 : (num_tokens - window) * index / (count - 1);
    windows.push_back({begin, begin + window, begin + prompt});
  }
  return windows;
}

KvBudget Share(double kept_frac) { return {{kept_frac, 0}, {}, {}}; }

// The budgets that were chosen, one for each layer.
struct Budgets {
  std::vector<double> kept_frac;
  double loss = 0.0;  // measured, all together

  double mean_frac() const {
    double sum = 0.0;
    for (const double frac : kept_frac) sum += frac;
    return sum / static_cast<double>(kept_frac.size());
  }
};

// Measures and chooses. Losses are of the mean log-probability per token.
class Calibration {
 public:
  using MeasureFn = std::function<double(const std::vector<double>& kept_frac)>;

  // `measure` gives the mean negative log-probability with these shares kept.
  Calibration(int64_t num_layers, double max_loss, MeasureFn measure)
      : max_loss_(max_loss),
        measure_(std::move(measure)),
        whole_(static_cast<std::size_t>(num_layers), 1.0) {}

  Budgets Run() {
    full_ = measure_(whole_);
    for (std::size_t layer = 0; layer < whole_.size(); ++layer) layers_.push_back(Ladder(layer));
    return Join();
  }

  double full() const { return full_; }
  const std::vector<std::vector<BudgetLoss>>& layers() const { return layers_; }

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
  Budgets Join() {
    Budgets best = {whole_, 0.0};
    std::map<std::vector<std::size_t>, double> measured;
    double low = 0.0;
    double high = 2.0 * max_loss_;
    for (int round = 0; round < kJointRounds; ++round) {
      const double allowed = (low + high) / 2.0;
      const std::vector<std::size_t> chosen = SmallestBudgets(layers_, allowed);
      const std::vector<double> shares = SharesOf(chosen);
      if (!measured.contains(chosen)) measured[chosen] = LossOf(shares);
      const Budgets budgets = {shares, measured[chosen]};
      const bool fits = budgets.loss <= max_loss_;
      if (fits && budgets.mean_frac() < best.mean_frac()) best = budgets;
      (fits ? low : high) = allowed;
    }
    return best.mean_frac() < 1.0 ? best : Lift();
  }

  // Layers that lose nothing alone may lose together: all a step up, until they do not.
  Budgets Lift() {
    std::vector<std::size_t> chosen = SmallestBudgets(layers_, 0.0);
    while (true) {
      for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
        chosen[layer] = std::min(chosen[layer] + 1, layers_[layer].size() - 1);
      }
      Budgets budgets = {SharesOf(chosen), LossOf(SharesOf(chosen))};
      if (budgets.loss <= max_loss_ || budgets.mean_frac() == 1.0) return budgets;
    }
  }

  double max_loss_;
  MeasureFn measure_;
  std::vector<double> whole_;
  double full_ = 0.0;
  std::vector<std::vector<BudgetLoss>> layers_;
};

KvPolicy KvWith(const Config& config, const std::vector<double>& kept_frac) {
  KvPolicy kv;
  kv.kind = config.kv.kind;
  kv.num_sinks = config.kv.num_sinks;
  for (const double frac : kept_frac) kv.layer_budgets.push_back(Share(frac));
  return kv;
}

// Of all KV of such rows: sinks count too.
double KeptOfAll(const KvPolicy& kv, int64_t row_tokens) {
  int64_t kept = 0;
  for (int64_t block = 0; block < std::ssize(kv.layer_budgets); ++block) {
    kept += KeepOf(kv, block, row_tokens).slots();
  }
  return static_cast<double>(kept) / static_cast<double>(std::ssize(kv.layer_budgets) * row_tokens);
}

std::string Percent(double frac) { return fmt::format("{:.2f} %", 100.0 * frac); }

std::string Table(const Calibration& calibration, const Budgets& budgets, double kept_of_all) {
  std::string text = "  layer   keeps   perplexity alone, by share kept\n";
  for (std::size_t layer = 0; layer < budgets.kept_frac.size(); ++layer) {
    text += fmt::format("  {:>5}  {:>4.0f} %  ", layer, 100.0 * budgets.kept_frac[layer]);
    for (const BudgetLoss& at : calibration.layers()[layer]) {
      if (at.kept_frac == 1.0) continue;
      text +=
          fmt::format(" {:.0f} %: {:+.2f} %", 100.0 * at.kept_frac, 100.0 * std::expm1(at.loss));
    }
    text += "\n";
  }
  return text + fmt::format("perplexity {:.2f}, {:.2f} with all KV ({:+.2f} %); KV kept {}\n",
                            std::exp(calibration.full() + budgets.loss),
                            std::exp(calibration.full()), 100.0 * std::expm1(budgets.loss),
                            Percent(kept_of_all));
}

// Model and policy as in the report of a run, so that the two can be compared.
std::string CalibrationJson(const Plan& plan, const KvPolicy& kv, const Calibration& calibration,
                            const Budgets& budgets, double kept_of_all) {
  nlohmann::ordered_json json;
  json["version"] = 1;
  json["model"] = {{"name", plan.shape.name}};
  json["policy"] = {{"weight_bits", plan.shape.weight_bits},
                    {"kv_bits", plan.policy.kv_bits},
                    {"kv", KvPolicyJson(kv)}};
  nlohmann::ordered_json& out = json["calibration"];
  out["perplexity_full"] = std::exp(calibration.full());
  out["perplexity"] = std::exp(calibration.full() + budgets.loss);
  out["kv_frac"] = kept_of_all;
  for (std::size_t layer = 0; layer < budgets.kept_frac.size(); ++layer) {
    nlohmann::ordered_json losses;
    for (const BudgetLoss& at : calibration.layers()[layer]) {
      losses.push_back({{"kept_frac", at.kept_frac}, {"perplexity_ratio", std::exp(at.loss)}});
    }
    out["layers"].push_back({{"kept_frac", budgets.kept_frac[layer]}, {"alone", losses}});
  }
  return json.dump(2) + "\n";
}

// The plan with every token kept, whose memory all others use.
Plan WholePlan(const Config& config, const OpenedModel& model, const Workload& work,
               const Device& device) {
  Config whole = config;
  whole.kv = KvWith(config, std::vector(static_cast<std::size_t>(model.shape.num_layers), 1.0));
  return PlanFor(whole, model, ProbeMachine(config, model, device), work, device);
}

}  // namespace

int RunCalibrate(const Config& config) {
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = ModelFor(config);
  const ReportFile output("--output", config.output, {config.perplexity, {}, config.report});
  const ReportFile report("--report", config.report, {config.perplexity, config.output, {}});
  std::FILE* terminal = TerminalOf(config);
  ProgressLine line(config.progress ? terminal : nullptr);
  const std::vector<TokenId> tokens =
      ReadTextTokens(config, config.perplexity, "--text", *model.tokenizer);
  const auto windows = SampleWindows(config, model.shape, static_cast<int64_t>(tokens.size()));
  Feed feed;
  feed.prefill.tokens = windows.front().first - windows.front().begin;
  if (model.shape.bos >= 0) feed.start = model.shape.bos;
  const Workload work = WindowJob(tokens, windows, feed).Work();
  const Plan plan = WholePlan(config, model, work, *device);
  Supervisor loaded({model, plan, *device, OffloadFolder(config), config.seed, {}, nullptr}, line);

  int num_runs = 0;
  const auto measure = [&](const std::vector<double>& kept_frac) {
    Policy policy = plan.policy;
    policy.kv = KvWith(config, kept_frac);
    policy.most_log_passes = plan.kv_log.passes;  // the log has to fit where that plan's lies
    line.Note(fmt::format("calibrating: run {}", ++num_runs));
    WindowJob job(tokens, windows, feed);
    const Plan smaller = LayOut(model, plan.machine, work, policy, device->needs());
    loaded.Run(smaller, MakeSchedule(smaller, OverlapOf(config)), job, [](const WorkDone&) {});
    const ScoreSummary score = job.Summary();
    return -score.logprob_sum / static_cast<double>(score.num_tokens);
  };
  Calibration calibration(model.shape.num_layers, std::log1p(config.max_loss_frac), measure);
  const Budgets budgets = calibration.Run();

  const KvPolicy kv = KvWith(config, budgets.kept_frac);
  const double kept_of_all = KeptOfAll(kv, windows.front().end - windows.front().begin);
  line.Clear();
  output.Write(PolicyJson(
      kv,
      {fmt::format("spillway calibrate: {}, {} windows of {} tokens, loss of perplexity {} of at "
                   "most {}, KV kept {}",
                   model.shape.name, windows.size(), windows.front().end - windows.front().begin,
                   Percent(std::expm1(budgets.loss)), Percent(config.max_loss_frac),
                   Percent(kept_of_all))}));
  report.Write(CalibrationJson(plan, kv, calibration, budgets, kept_of_all));
  if (terminal != nullptr) PrintTo(terminal, Table(calibration, budgets, kept_of_all));
  return 0;
}

}  // namespace spillway
