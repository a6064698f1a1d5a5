#include "src/verbs/simulate.h"

#include <memory>
#include <optional>

#include "spillway/error.h"
#include "spillway/report.h"
#include "src/base/clock.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/report/chrome_trace.h"
#include "src/simulate/simulate.h"
#include "src/verbs/choose_policy.h"
#include "src/verbs/model_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/planned_work.h"
#include "src/verbs/prepare.h"

namespace spillway {
namespace {

void CheckRates(const Config& config, const Machine& machine) {
  RequireRates(machine);
  if (config.as_flexgen && !machine.flexgen) {
    throw Error(ErrorCode::kMachine,
                "--as-flexgen: the machine file has no flexgen section; give one that has");
  }
}

// A trace of virtual time. The file counts from when it was opened, the simulation from 0.
class SimTrace {
 public:
  SimTrace(const ReportFile& file, const Plan& plan)
      : file_(file), trace_(file.Create(), file.Named(), plan), begin_s_(NowSeconds()) {}

  void Add(TraceEvent event) {
    if (auto* span = std::get_if<TraceSpan>(&event)) {
      span->begin_s += begin_s_;
      span->end_s += begin_s_;
    } else if (auto* rows = std::get_if<RowSample>(&event)) {
      rows->at_s += begin_s_;
    }
    trace_.Write(event);
  }
  void Finish() {
    trace_.End(0);
    file_.Commit(trace_.file());
  }

 private:
  const ReportFile& file_;
  ChromeTrace trace_;
  double begin_s_;
};

}  // namespace

int RunSimulate(const Config& config) {
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = ModelFor(config);
  const ReportFile report("--report", config.report, {config.input, {}, config.trace});
  const ReportFile trace_file("--trace", config.trace, {config.input, {}, config.report});
  const Machine machine = MachineToPlanFor(config, model, *device);
  CheckRates(config, machine);
  const Workload work = PlannedWork(config, model, machine, *device);
  Plan plan = PlanFor(config, model, machine, work, *device);
  if (config.as_flexgen) plan.kv_log = {};  // FlexGen has none

  SimOptions options;
  options.overlap = OverlapOf(config);
  if (config.as_flexgen) options.schedule = SimSchedule::kFlexGen;
  std::optional<SimTrace> trace;
  if (trace_file.asked_for()) {
    trace.emplace(trace_file, plan);
    options.sink = [&trace](const TraceEvent& event) { trace->Add(event); };
  }
  const SimResult result = Simulate(plan, work, options);
  if (trace) trace->Finish();

  RunSummary summary;
  summary.num_requests = summary.num_completions = work.num_requests;
  summary.total_s = result.prediction.total_s();
  summary.predicted = result.prediction;
  report.Write(ReportJson(plan, result.trace, summary));
  if (std::FILE* terminal = TerminalOf(config)) {
    PrintTo(terminal, ReportTable(plan, result.trace, summary));
  }
  return 0;
}

}  // namespace spillway
