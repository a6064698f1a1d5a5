#include "src/verbs/planned_work.h"

#include <fmt/format.h>

#include <cstdio>

#include "spillway/error.h"
#include "src/base/terminal.h"
#include "src/verbs/policy_for.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/synthetic.h"

namespace spillway {

Workload PlannedWork(const Setting& setting) {
  const auto& [config, model, machine, device, needs] = setting;
  if (config.input.empty()) return SyntheticWork(config, model.shape);
  const InputScan scan = PromptFile(config, model).Scan();
  if (const int64_t num_bad = scan.num_lines - scan.num_requests; num_bad > 0) {
    PrintWarning(
        fmt::format("{}: {} of {} lines cannot run; each will have an error for its answer",
                    Printable(config.input.string()), num_bad, scan.num_lines));
  }
  return WorkloadOf(scan);
}

}  // namespace spillway
