#include "src/execute/planned_work.h"

#include "src/execute/prepare.h"
#include "src/execute/prompt_file.h"
#include "src/execute/synthetic.h"

namespace spillway {

Workload PlannedWork(const Config& config, const OpenedModel& model, const Machine& machine,
                     const Device& device) {
  if (config.input.empty()) return SyntheticWork(config, model.shape);
  RefuseWhatCannotFit(config, model.shape, machine, device);
  return WorkloadOf(PromptFile(config, model).Scan());
}

}  // namespace spillway
