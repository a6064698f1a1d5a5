#include "src/verbs/simulate.h"

#include <optional>

#include "spillway/error.h"
#include "spillway/report.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/report/chrome_trace.h"
#include "src/simulate/simulate.h"
#include "src/verbs/chain.h"
#include "src/verbs/machine_for.h"
#include "src/verbs/planned_work.h"

namespace spillway {
namespace {

void CheckRates(const Config& config, const Machine& machine) {
  RequireRates(machine);
  if (config.as_flexgen && !machine.flexgen) {
    throw Error(ErrorCode::kMachine,
                "--as-flexgen: the machine file has no flexgen section; give one that has");
  }
}

// A trace of virtual time; one that is not finished leaves no file.
class SimTrace {
 public:
  SimTrace(const ReportFile& file, const Plan& plan)
      : file_(file), trace_(file.Create(), file.Named(), plan, 0.0) {}
  ~SimTrace() {
    if (!finished_) file_.Discard();
  }
  SimTrace(const SimTrace&) = delete;
  SimTrace& operator=(const SimTrace&) = delete;

  void Add(const TraceEvent& event) { trace_.Write(event); }
  void Finish() {
    trace_.End(0);
    file_.Commit(trace_.file());
    finished_ = true;
  }

 private:
  const ReportFile& file_;
  ChromeTrace trace_;
  bool finished_ = false;
};

class SimulateStages final : public Stages {
 public:
  explicit SimulateStages(const Opened& opened)
      : report_(ReportKind::kReport, "--report", opened.flags.report,
                {opened.flags.input, {}, opened.flags.trace}),
        trace_file_(ReportKind::kTrace, "--trace", opened.flags.trace,
                    {opened.flags.input, {}, opened.flags.report}) {}

  Workload ReadWork(const Setting& setting) override {
    CheckRates(setting.config, setting.machine);
    return PlannedWork(setting);
  }

  Plan PlanFor(const Setting& setting, const Workload& work, const Policy& policy) override {
    Plan plan = Stages::PlanFor(setting, work, policy);
    if (setting.config.as_flexgen) plan.kv_log = {};  // FlexGen has none
    return plan;
  }

  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    SimOptions options;
    options.overlap = planned.schedule.overlap;
    if (setting.config.as_flexgen) options.schedule = SimSchedule::kFlexGen;
    std::optional<SimTrace> trace;
    if (trace_file_.asked_for()) {
      trace.emplace(trace_file_, planned.plan);
      options.sink = [&trace](const TraceEvent& event) { trace->Add(event); };
    }
    const SimResult result = Simulate(planned.plan, planned.work, options);
    if (trace) trace->Finish();
    prediction_ = result.prediction;
    return result.trace;
  }

  int Report(const Setting& setting, const PlannedRun& planned,
             const std::optional<Trace>& trace) override {
    RunSummary summary;
    summary.num_requests = summary.num_completions = planned.work.num_requests;
    summary.total_s = prediction_.total_s();
    summary.predicted = prediction_;
    report_.Write(ReportJson(planned.plan, *trace, summary));
    PrintTo(TerminalOf(setting.config), ReportTable(planned.plan, *trace, summary));
    return 0;
  }

 private:
  ReportFile report_;
  ReportFile trace_file_;
  Prediction prediction_;
};

}  // namespace

int RunSimulate(const Config& config) { return RunChain(config, MakeStages<SimulateStages>); }

}  // namespace spillway
