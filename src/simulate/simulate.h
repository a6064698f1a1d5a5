// Simulate: the sim executor. Runs the Schedule of a Plan on a virtual clock that the cost model
// drives, and gives the same Trace as a run. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "policies/cost/cost_model.h"
#include "spillway/plan.h"
#include "spillway/prediction.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "spillway/workload.h"
#include "src/simulate/sim_batch.h"
#include "src/simulate/sim_links.h"

namespace spillway {

// Called with the rows of a pass that is walked before it is; `pass` counts over the whole run.
using PassSink = std::function<void(int64_t pass, std::span<const SimBatch> batches)>;

enum class SimSchedule { kSpillway, kFlexGen };

struct SimOptions {
  Overlap overlap = Overlap::kOn;
  SimSchedule schedule = SimSchedule::kSpillway;  // kFlexGen needs machine.flexgen
  // Cells that are walked, about. Beyond, one pass stands for several neighbours that differ in the
  // length of their rows alone, at their middle. Up to it the walk is complete.
  int64_t max_cells = 400'000;
  bool walk_all = false;  // every block; for tests
  EventSink sink;         // gets what is walked, from second 0 on
  PassSink on_pass;       // empty: nobody asks
};

struct SimResult {
  Trace trace;
  UnitSeconds units;  // of all computes
  Prediction prediction;
};

// Rows end at max_new_tokens. Of a workload of more than a few blocks the first ones are walked and
// the rest counted like them: exactly so where all requests are alike.
// Requires: KnowsRates(plan.machine).
SimResult Simulate(const Plan& plan, const Workload& work, const SimOptions& options);

}  // namespace spillway
