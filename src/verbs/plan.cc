#include "src/verbs/plan.h"

#include <memory>

#include "spillway/report.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/verbs/choose_policy.h"
#include "src/verbs/model_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/planned_work.h"
#include "src/verbs/prepare.h"

namespace spillway {

int RunPlan(const Config& config) {
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = ModelFor(config);
  const ReportFile report("--report", config.report, {config.input, config.output, config.trace});
  const Machine machine = MachineToPlanFor(config, model, *device);
  const Workload work = PlannedWork(config, model, machine, *device);
  const Plan plan = PlanFor(config, model, machine, work, *device);
  const std::optional<Prediction> predicted = PredictionFor(config, plan, work);
  report.Write(PlanJson(plan, work, predicted));
  if (std::FILE* terminal = TerminalOf(config)) PrintTo(terminal, PlanTable(plan, work, predicted));
  return 0;
}

}  // namespace spillway
