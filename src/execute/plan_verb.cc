#include "src/execute/plan_verb.h"

#include "spillway/report.h"
#include "src/execute/choose_policy.h"
#include "src/execute/planned_work.h"
#include "src/execute/prepare.h"
#include "src/execute/run_blocks.h"
#include "src/model/open_model.h"
#include "src/report/report_file.h"
#include "src/report/terminal.h"

namespace spillway {

int RunPlan(const Config& config) {
  const OpenedModel model = OpenModel(config);
  const ReportFile report("--report", config.report, {config.input, config.output, config.trace});
  const Machine machine = MachineToPlanFor(config, model);
  const Workload work = PlannedWork(config, model, machine);
  const Plan plan = PlanFor(config, model.shape, machine, work);
  const std::optional<Prediction> predicted = PredictionFor(config, plan, work);
  report.Write(PlanJson(plan, work, predicted));
  if (std::FILE* terminal = TerminalOf(config)) PrintTo(terminal, PlanTable(plan, work, predicted));
  return 0;
}

}  // namespace spillway
