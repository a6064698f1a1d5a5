// FlexGen's order of work, for comparison: what its reference loop does in one step, after which it
// waits for everything. Pure functions; any thread.
#pragma once

#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "src/simulate/work_order.h"

namespace spillway {

// Layer by layer, one layer's weights ahead, at the effective rates of the machine file's
// "flexgen". Requires: plan.machine.flexgen.
WorkOrder FlexGenOrder(const Plan& plan, Overlap overlap);

}  // namespace spillway
