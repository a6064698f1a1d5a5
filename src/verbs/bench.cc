#include "src/verbs/bench.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "spillway/report.h"
#include "src/base/clock.h"
#include "src/base/exit_status.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/report/progress.h"
#include "src/run/supervisor.h"
#include "src/verbs/choose_policy.h"
#include "src/verbs/model_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/prepare.h"
#include "src/verbs/synthetic.h"

namespace spillway {

int RunBench(const Config& config) {
  const double begin_s = NowSeconds();
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = ModelFor(config);
  const ReportFile report("--report", config.report, {{}, {}, config.trace});
  const ReportFile trace_file("--trace", config.trace, {{}, {}, config.report});
  const Workload work = SyntheticWork(config, model.shape);
  Plan plan = PlanFor(config, model, MachineToPlanFor(config, model, *device), work, *device);

  const std::optional<Prediction> expected = PredictionFor(config, plan, work);
  if (config.verbosity == Verbosity::kVerbose) {
    PrintTo(TerminalOf(config), PlanTable(plan, work, expected));
  }
  ProgressLine line(config.progress ? TerminalOf(config) : nullptr);
  SyntheticJob job(work, model.shape, config.seed);
  std::optional<TraceLog> trace_log;
  if (trace_file.asked_for()) trace_log.emplace(trace_file, plan);
  const Trace trace = RunJob({model, plan, *device, OffloadFolder(config), config.seed,
                              ExpectedOf(work, plan, expected), trace_log ? &*trace_log : nullptr},
                             MakeSchedule(plan, OverlapOf(config)), job, line);

  const double total_s = NowSeconds() - begin_s;
  const std::optional<Prediction> predicted =
      TakeStoreRate(trace, plan) ? PredictionFor(config, plan, work) : expected;
  const RunSummary summary = {job.num_requests(), job.num_completions(), job.num_errors(), total_s,
                              job.fingerprint(),  std::nullopt,          predicted};
  report.Write(ReportJson(plan, trace, summary));
  if (trace_log) trace_log->Finish();
  line.Clear();
  if (std::FILE* terminal = TerminalOf(config)) {
    PrintTo(terminal, ReportTable(plan, trace, summary));
  }
  if (summary.num_errors == 0) return 0;
  PrintTo(stderr, fmt::format("spillway: warning: {} of {} rows failed: their logits are not "
                              "finite\n",
                              summary.num_errors, summary.num_requests));
  return kSomeLinesCarryErrors;
}

}  // namespace spillway
