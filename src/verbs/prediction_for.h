// PredictionFor: what the cost model expects of a run, for its progress line and its report.
// Thread rule: the main thread.
#pragma once

#include <optional>

#include "spillway/plan.h"
#include "spillway/prediction.h"
#include "spillway/schedule.h"  // Overlap
#include "spillway/trace.h"
#include "spillway/workload.h"
#include "src/config/config.h"

namespace spillway {

Overlap OverlapOf(const Config& config);

// nullopt where the rates are not known.
std::optional<Prediction> PredictionFor(const Config& config, const Plan& plan,
                                        const Workload& work);

// The prediction in a report of a run that has ended: `expected`, or, where the run measured what
// the disk gives of its own store, the prediction at that rate; `plan` gets the rate, for the
// report states it beside the machine's.
std::optional<Prediction> PredictionAfter(const Config& config, const Trace& trace,
                                          const Workload& work,
                                          const std::optional<Prediction>& expected, Plan& plan);

}  // namespace spillway
