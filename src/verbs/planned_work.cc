#include "src/verbs/planned_work.h"

#include "src/base/terminal.h"
#include "src/verbs/input_text.h"
#include "src/verbs/policy_for.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/synthetic.h"

namespace spillway {

Workload PlannedWork(const Setting& setting) {
  const auto& [config, model, machine, device, needs] = setting;
  if (config.input.empty()) return SyntheticWork(config, model.shape);
  const InputScan scan = PromptFile(config, model).Scan();
  RefuseBadLines(config, scan);
  PrintTo(TerminalOf(config), InputText(config, scan, scan.num_requests));
  return WorkloadOf(scan, setting);
}

}  // namespace spillway
