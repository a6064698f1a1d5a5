#include "src/execute/plan_verb.h"

#include <memory>

#include "spillway/report.h"
#include "src/execute/choose_policy.h"
#include "src/execute/open_device.h"
#include "src/execute/planned_work.h"
#include "src/execute/prepare.h"
#include "src/execute/run_blocks.h"
#include "src/model/open_model.h"
#include "src/report/report_file.h"
#include "src/report/terminal.h"

namespace spillway {

int RunPlan(const Config& config) {
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = OpenModel(config);
  const ReportFile report("--report", config.report, {config.input, config.output, config.trace});
  const Machine machine = MachineToPlanFor(config, model, *device);
  const Workload work = PlannedWork(config, model, machine, *device);
  const Plan plan = PlanFor(config, model.shape, machine, work, *device);
  const std::optional<Prediction> predicted = PredictionFor(config, plan, work);
  report.Write(PlanJson(plan, work, predicted));
  if (std::FILE* terminal = TerminalOf(config)) PrintTo(terminal, PlanTable(plan, work, predicted));
  return 0;
}

}  // namespace spillway
