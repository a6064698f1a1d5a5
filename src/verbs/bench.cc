#include "src/verbs/bench.h"

#include <fmt/format.h>

#include "spillway/report.h"
#include "src/base/clock.h"
#include "src/base/exit_status.h"
#include "src/base/terminal.h"
#include "src/run/supervisor.h"
#include "src/verbs/chain.h"
#include "src/verbs/prediction_for.h"
#include "src/verbs/run_output.h"
#include "src/verbs/synthetic.h"

namespace spillway {
namespace {

class BenchStages final : public Stages {
 public:
  explicit BenchStages(const Opened& opened)
      : begin_s_(opened.begin_s), output_(opened.flags, {}, {}) {}

  Workload ReadWork(const Setting& setting) override {
    return SyntheticWork(setting.config, setting.model.shape);
  }

  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    const auto& [config, model, machine, device, needs] = setting;
    const auto& [work, plan, schedule] = planned;
    expected_ = PredictionFor(config, plan, work);
    if (config.verbosity == Verbosity::kVerbose) output_.Print(PlanTable(plan, work, expected_));
    job_.emplace(work, model.shape, config.seed);
    Trace trace = RunJob({model, plan, device, OffloadFolder(config), config.seed,
                          ExpectedOf(work, expected_), output_.OpenTrace(plan)},
                         schedule, *job_, output_.line());
    total_s_ = NowSeconds() - begin_s_;
    return trace;
  }

  int Report(const Setting& setting, const PlannedRun& planned,
             const std::optional<Trace>& trace) override {
    Plan plan = planned.plan;
    const std::optional<Prediction> predicted =
        PredictionAfter(setting.config, *trace, planned.work, expected_, plan);
    const RunSummary summary = {.num_requests = job_->num_requests(),
                                .num_completions = job_->num_completions(),
                                .num_errors = job_->num_errors(),
                                .total_s = total_s_,
                                .fingerprint = job_->fingerprint(),
                                .score = std::nullopt,
                                .predicted = predicted};
    output_.Report(plan, *trace, summary);
    if (summary.num_errors == 0) return 0;
    PrintWarning(fmt::format("{} of {} rows failed: their logits are not finite",
                             summary.num_errors, summary.num_requests));
    return kSomeLinesCarryErrors;
  }

 private:
  double begin_s_;
  RunOutput output_;
  std::optional<Prediction> expected_;
  std::optional<SyntheticJob> job_;
  double total_s_ = 0.0;
};

}  // namespace

int RunBench(const Config& config) { return RunChain(config, MakeStages<BenchStages>); }

}  // namespace spillway
