#include "src/execute/plan_verb.h"

#include <memory>

#include "spillway/report.h"
#include "src/execute/open_device.h"
#include "src/execute/prepare.h"
#include "src/execute/prompt_file.h"
#include "src/execute/run_blocks.h"
#include "src/execute/synthetic.h"
#include "src/model/open_model.h"
#include "src/report/report_file.h"
#include "src/report/terminal.h"

namespace spillway {
namespace {

Workload WorkOf(const Config& config, const OpenedModel& model, const Machine& machine,
                const Device& device) {
  if (config.input.empty()) return SyntheticWork(config, model.shape);
  RefuseWhatCannotFit(config, model.shape, machine, device);
  return WorkloadOf(PromptFile(config, model).Scan());
}

}  // namespace

int RunPlan(const Config& config) {
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = OpenModel(config);
  const ReportFile report("--report", config.report, {config.input, config.output, config.trace});
  const Machine machine = ProbeMachine(config, model, *device);
  const Workload work = WorkOf(config, model, machine, *device);
  const Plan plan = PlanFor(config, model.shape, machine, work, *device);
  report.Write(PlanJson(plan, work));
  if (std::FILE* terminal = TerminalOf(config)) PrintTo(terminal, PlanTable(plan, work));
  return 0;
}

}  // namespace spillway
