// WorkOrder: an order of work to simulate, and the rates that go with it. Plain values; any thread.
#pragma once

#include "policies/cost/cost_model.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"

namespace spillway {

struct WorkOrder {
  Schedule schedule;  // its grid, and the layers whose weights come before the first cell
  TaskList (*tasks)(const Schedule& schedule, const Cursor& at) = nullptr;  // of a cell
  // Whether a cell ends, and a block begins, when all that was begun is done.
  bool waits_for_all = false;
  // Whether the CPU attends to a batch while the GPU computes another.
  bool attends_beside = false;
  CostRates prefill_rates;
  CostRates decode_rates;
};

// The order of a run. Requires: KnowsRates(plan.machine).
WorkOrder ZigZagOrder(const Plan& plan, Overlap overlap);

}  // namespace spillway
