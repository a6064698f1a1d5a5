// ChoosePolicy: the policy that flags and files state, the rest of it searched for where the
// machine's rates are known. Thread rule: the main thread.
#pragma once

#include <optional>

#include "policies/search/policy_search.h"
#include "spillway/machine.h"
#include "spillway/model.h"
#include "spillway/plan.h"
#include "spillway/prediction.h"
#include "spillway/schedule.h"  // Overlap
#include "spillway/trace.h"
#include "spillway/workload.h"
#include "src/config/config.h"

namespace spillway {

// What flags and a policy file state.
// Throws: Error kFlag, kPolicy: a share on a gpu that there is none of; kFlag: another flag that
// has no effect without a gpu, or beside --percent; kPolicy: KV budgets of a model with another
// number of layers.
GivenPolicy PolicyGivenBy(const Config& config, const ModelShape& shape, const Machine& machine);

Overlap OverlapOf(const Config& config);

// Lengths without a number of requests: as many as a policy takes at a time.
bool IsEndless(const Config& config);

// Requires: KnowsRates(machine).
SearchResult SearchFor(const Config& config, const Model& model, const Machine& machine,
                       const Workload& work, const KernelNeeds& needs);

// The best of a search; the default policy where the rates are not known, where nothing is left to
// search for, or where nothing fits: planning it then says what is missing.
// Throws: as PolicyGivenBy.
Policy ChoosePolicy(const Config& config, const Model& model, const Machine& machine,
                    const Workload& work, const KernelNeeds& needs);

// Gives the plan's machine what the disk gave of the run's own store: what the report predicts the
// run by, and states beside the machine's rate. Returns whether there is such a rate.
bool TakeStoreRate(const Trace& trace, Plan& plan);

// What the cost model expects of the run; nullopt where the rates are not known.
std::optional<Prediction> PredictionFor(const Config& config, const Plan& plan,
                                        const Workload& work);

}  // namespace spillway
