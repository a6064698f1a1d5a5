#include "src/verbs/calibrate_layers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/json_text.h"
#include "src/base/terminal.h"
#include "src/formats/policy_file.h"
#include "src/verbs/calibrate_stages.h"
#include "src/verbs/layer_calibration.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

double MeanOf(const WindowLogprobs& logprobs) {
  double sum = 0.0;
  int64_t count = 0;
  for (const std::vector<float>& window : logprobs) {
    double of_window = 0.0;
    for (const float logprob : window) of_window += logprob;
    sum += of_window;
    count += std::ssize(window);
  }
  return sum / static_cast<double>(count);
}

class LayerStages final : public CalibrateStages {
 public:
  using CalibrateStages::CalibrateStages;

  // Every token is kept: all other plans use the memory of that one.
  Config Settle(const Config& flags) override {
    Config whole = flags;
    whole.kv = KvWith(flags, std::vector(static_cast<std::size_t>(model_.shape.num_layers), 1.0));
    return whole;
  }

  // Makes many runs, each with its own plan.
  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    Supervisor supervisor = Supervise(setting, planned.plan);
    const std::vector<TextWindow> windows = WindowsAt(begins_, size_.tokens, LongestPrompt());
    int num_runs = 0;
    const auto measure = [&](const std::vector<double>& kept_frac) {
      line_.Note(fmt::format("calibrating: run {}", ++num_runs));
      const Supervised by = {planned.plan, planned.schedule.overlap, supervisor};
      return -MeanOf(Score(setting, by, KvWith(flags_, kept_frac), windows));
    };
    found_ = FindLayerBudgets(model_.shape.num_layers, std::log1p(flags_.max_loss_frac), measure);
    return std::nullopt;
  }

  int Report(const Setting& /*setting*/, const PlannedRun& planned,
             const std::optional<Trace>& /*trace*/) override {
    const LayerBudgets& budgets = found_.budgets;
    const KvPolicy kv = KvWith(flags_, budgets.kept_frac);
    const double kept = KeptOfAll(kv, model_.shape, size_.tokens);
    line_.Clear();
    output_.Write(PolicyJson(
        kv, planned.plan.policy.kv_bits,
        {fmt::format("spillway calibrate: {}, {} windows of {} tokens, loss of perplexity {} of "
                     "at most {}, KV kept {}",
                     model_.shape.name, begins_.size(), size_.tokens,
                     Percent(std::expm1(budgets.loss)), Percent(flags_.max_loss_frac),
                     Percent(kept))}));
    report_.Write(ReportText(planned.plan, kv, kept));
    PrintTo(TerminalOf(flags_),
            LayerTable(found_) +
                fmt::format("perplexity {:.2f}, {:.2f} with all KV ({:+.2f} %); KV kept {}\n",
                            std::exp(found_.full + budgets.loss), std::exp(found_.full),
                            100.0 * std::expm1(budgets.loss), Percent(kept)));
    return 0;
  }

 private:
  int64_t LongestPrompt() const override { return size_.prompt.value_or(size_.tokens / 2); }
  int64_t UsualSample() const override { return 16; }

  std::string ReportText(const Plan& plan, const KvPolicy& kv, double kept) const {
    Json json = HeadOfReport(plan, kv);
    Json& out = json["calibration"];
    out["perplexity_full"] = std::exp(found_.full);
    out["perplexity"] = std::exp(found_.full + found_.budgets.loss);
    out["kv_frac"] = kept;
    Json& layers = out["layers"] = Json::array();
    for (std::size_t layer = 0; layer < found_.layers.size(); ++layer) {
      Json losses = Json::array();
      for (const BudgetLoss& at : found_.layers[layer])
        losses.push_back({{"kept_frac", at.kept_frac}, {"perplexity_ratio", std::exp(at.loss)}});
      layers.push_back({{"kept_frac", found_.budgets.kept_frac[layer]}, {"alone", losses}});
    }
    return JsonFileText(json);
  }

  LayerFindings found_;
};

}  // namespace

std::unique_ptr<Stages> CalibrateLayers(const Opened& opened) {
  return std::make_unique<LayerStages>(opened);
}

}  // namespace spillway
