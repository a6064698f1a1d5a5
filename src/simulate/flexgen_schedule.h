// FlexGen's order of work, for comparison: what its reference loop does in one step, after which it
// waits for everything. Pure functions; any thread.
#pragma once

#include "policies/cost/cost_model.h"
#include "spillway/machine.h"
#include "spillway/schedule.h"
#include "src/simulate/work_order.h"

namespace spillway {

// The next layer's weights as a whole at batch 0; KV and states of the next batch; stores of the
// batch before; this batch's compute.
TaskList FlexGenTasks(const Schedule& schedule, const Cursor& at);

// A machine file's effective rates as those of one kind of pass. FlexGen computes the full square
// of a prompt's attention, the cost model counts the half that is needed. Its KV crosses from
// unpinned memory at a pace of its own. Requires: machine.flexgen.
enum class FlexGenPass { kPrefill, kDecode };
CostRates FlexGenRatesOf(const Machine& machine, FlexGenPass pass);

// Layer by layer, with FlexGenTasks and the rates above. Requires: plan.machine.flexgen.
WorkOrder FlexGenOrder(const Plan& plan, Overlap overlap);

}  // namespace spillway
