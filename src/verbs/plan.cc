#include "src/verbs/plan.h"

#include "spillway/report.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/verbs/advice.h"
#include "src/verbs/chain.h"
#include "src/verbs/input_text.h"
#include "src/verbs/planned_work.h"
#include "src/verbs/prediction_for.h"

namespace spillway {
namespace {

// A plan of generate, whose rows come from a file.
std::optional<SamplingSummary> SamplingOf(const Config& config) {
  if (config.input.empty()) return std::nullopt;
  return SamplingSummary{config.sampling, config.from_generation_config};
}

class PlanStages final : public Stages {
 public:
  explicit PlanStages(const Opened& opened)
      : report_(ReportKind::kReport, "--report", opened.flags.report,
                {opened.flags.input, opened.flags.output, opened.flags.trace}) {}

  Workload ReadWork(const Setting& setting) override { return PlannedWork(setting); }

  int Report(const Setting& setting, const PlannedRun& planned,
             const std::optional<Trace>& /*trace*/) override {
    const auto& [work, plan, schedule] = planned;
    const std::optional<Prediction> predicted = PredictionFor(setting.config, plan, work);
    report_.Write(PlanJson(plan, work, predicted, SamplingOf(setting.config)));
    PrintTo(TerminalOf(setting.config), PlanTable(plan, work, predicted) +
                                            DoneByText(work.num_requests, predicted) +
                                            AdviceText(setting, planned, predicted));
    return 0;
  }

 private:
  ReportFile report_;
};

}  // namespace

int RunPlan(const Config& config) { return RunChain(config, MakeStages<PlanStages>); }

}  // namespace spillway
