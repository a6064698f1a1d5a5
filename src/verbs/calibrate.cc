#include "src/verbs/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "policies/kv/kv_calibration.h"
#include "spillway/error.h"
#include "src/base/json_text.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/formats/kv_policy_json.h"
#include "src/formats/policy_file.h"
#include "src/report/progress.h"
#include "src/run/supervisor.h"
#include "src/verbs/chain.h"
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

struct Findings {
  double full = 0.0;                            // mean negative log-probability with all KV
  std::vector<std::vector<BudgetLoss>> layers;  // of each layer alone
  Budgets budgets;
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

  Findings Run() {
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

// Share of all KV of such rows that stays: sinks count too.
double KeptOfAll(const KvPolicy& kv, int64_t row_tokens) {
  int64_t kept = 0;
  for (int64_t decoder_layer = 0; decoder_layer < std::ssize(kv.layer_budgets); ++decoder_layer) {
    kept += KeepOf(kv, decoder_layer, row_tokens).slots();
  }
  return static_cast<double>(kept) / static_cast<double>(std::ssize(kv.layer_budgets) * row_tokens);
}

std::string Percent(double frac) { return fmt::format("{:.2f} %", 100.0 * frac); }

std::string Table(const Findings& found, double kept_of_all) {
  const Budgets& budgets = found.budgets;
  std::string text = "  layer   keeps   perplexity alone, by share kept\n";
  for (std::size_t layer = 0; layer < budgets.kept_frac.size(); ++layer) {
    text += fmt::format("  {:>5}  {:>4.0f} %  ", layer, 100.0 * budgets.kept_frac[layer]);
    for (const BudgetLoss& at : found.layers[layer]) {
      if (at.kept_frac == 1.0) continue;
      text +=
          fmt::format(" {:.0f} %: {:+.2f} %", 100.0 * at.kept_frac, 100.0 * std::expm1(at.loss));
    }
    text += "\n";
  }
  return text + fmt::format("perplexity {:.2f}, {:.2f} with all KV ({:+.2f} %); KV kept {}\n",
                            std::exp(found.full + budgets.loss), std::exp(found.full),
                            100.0 * std::expm1(budgets.loss), Percent(kept_of_all));
}

// Model and policy as in the report of a run, so that the two can be compared.
std::string CalibrationJson(const Plan& plan, const KvPolicy& kv, const Findings& found,
                            double kept_of_all) {
  const Budgets& budgets = found.budgets;
  nlohmann::ordered_json json;
  json["version"] = 1;
  json["model"] = {{"name", plan.shape.name}};
  json["policy"] = {{"weight_bits", plan.shape.weight_bits},
                    {"kv_bits", KvBitsJson(plan.policy.kv_bits)},
                    {"kv", KvPolicyJson(kv)}};
  nlohmann::ordered_json& out = json["calibration"];
  out["perplexity_full"] = std::exp(found.full);
  out["perplexity"] = std::exp(found.full + budgets.loss);
  out["kv_frac"] = kept_of_all;
  for (std::size_t layer = 0; layer < budgets.kept_frac.size(); ++layer) {
    nlohmann::ordered_json losses;
    for (const BudgetLoss& at : found.layers[layer]) {
      losses.push_back({{"kept_frac", at.kept_frac}, {"perplexity_ratio", std::exp(at.loss)}});
    }
    out["layers"].push_back({{"kept_frac", budgets.kept_frac[layer]}, {"alone", losses}});
  }
  return JsonFileText(json);
}

std::string SourceOf(const ModelShape& shape, const Budgets& budgets, std::size_t num_windows,
                     int64_t window, double max_loss, double kept_of_all) {
  return fmt::format(
      "spillway calibrate: {}, {} windows of {} tokens, loss of perplexity {} of at "
      "most {}, KV kept {}",
      shape.name, num_windows, window, Percent(std::expm1(budgets.loss)), Percent(max_loss),
      Percent(kept_of_all));
}

class CalibrateStages final : public Stages {
 public:
  explicit CalibrateStages(const Opened& opened)
      : flags_(opened.flags),
        model_(opened.model),
        output_("--output", flags_.output, {flags_.perplexity, {}, flags_.report}),
        report_("--report", flags_.report, {flags_.perplexity, flags_.output, {}}),
        line_(ProgressStreamOf(flags_)) {}

  // Every token is kept: all other plans use the memory of that one.
  Config Settle(const Config& flags) override {
    Config whole = flags;
    whole.kv = KvWith(flags, std::vector(static_cast<std::size_t>(model_.shape.num_layers), 1.0));
    return whole;
  }

  Workload ReadWork(const Setting& setting) override {
    tokens_ = ReadTextTokens(flags_, flags_.perplexity, "--text", *model_.tokenizer);
    windows_ = SampleWindows(flags_, setting.model.shape, static_cast<int64_t>(tokens_.size()));
    feed_.prefill.tokens = windows_.front().first - windows_.front().begin;
    if (model_.shape.bos >= 0) feed_.start = model_.shape.bos;
    return WindowJob(tokens_, windows_, feed_).Work();
  }

  // Makes many runs, each with its own plan.
  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    Supervisor supervisor(
        {model_, planned.plan, setting.device, OffloadFolder(flags_), flags_.seed, {}, nullptr},
        line_);
    const auto measure = [&](const std::vector<double>& kept_frac) {
      return Measure(setting, planned, kept_frac, supervisor);
    };
    found_ = Calibration(model_.shape.num_layers, std::log1p(flags_.max_loss_frac), measure).Run();
    return std::nullopt;
  }

  int Report(const Setting& /*setting*/, const PlannedRun& planned,
             const std::optional<Trace>& /*trace*/) override {
    const KvPolicy kv = KvWith(flags_, found_.budgets.kept_frac);
    const int64_t window = windows_.front().end - windows_.front().begin;
    const double kept_of_all = KeptOfAll(kv, window);
    line_.Clear();
    output_.Write(PolicyJson(kv, {SourceOf(model_.shape, found_.budgets, windows_.size(), window,
                                           flags_.max_loss_frac, kept_of_all)}));
    report_.Write(CalibrationJson(planned.plan, kv, found_, kept_of_all));
    PrintTo(TerminalOf(flags_), Table(found_, kept_of_all));
    return 0;
  }

 private:
  // The mean negative log-probability of a token with these shares kept.
  double Measure(const Setting& setting, const PlannedRun& planned,
                 const std::vector<double>& kept_frac, Supervisor& supervisor) {
    Policy policy = planned.plan.policy;
    policy.kv = KvWith(flags_, kept_frac);
    policy.most_log_passes =
        planned.plan.kv_log.passes;  // the log has to fit where that plan's lies
    line_.Note(fmt::format("calibrating: run {}", ++num_runs_));
    WindowJob job(tokens_, windows_, feed_);
    const Plan plan = LayOut(model_, planned.plan.machine, planned.work, policy, setting.needs);
    supervisor.Run(plan, MakeSchedule(plan, planned.schedule.overlap), job, [](const WorkDone&) {});
    const ScoreSummary score = job.Summary();
    return -score.logprob_sum / static_cast<double>(score.num_tokens);
  }

  const Config& flags_;
  const OpenedModel& model_;
  ReportFile output_;
  ReportFile report_;
  ProgressLine line_;
  std::vector<TokenId> tokens_;
  std::vector<TextWindow> windows_;
  Feed feed_;
  int num_runs_ = 0;
  Findings found_;
};

}  // namespace

int RunCalibrate(const Config& config) { return RunChain(config, MakeStages<CalibrateStages>); }

}  // namespace spillway
