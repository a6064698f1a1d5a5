// PolicyFor: the policy that flags and files state, the rest of it searched for where the machine's
// rates are known. Thread rule: the main thread.
#pragma once

#include "policies/search/policy_search.h"
#include "spillway/machine.h"
#include "spillway/model.h"
#include "spillway/plan.h"
#include "spillway/workload.h"
#include "src/config/config.h"

namespace spillway {

// The best of a search; the default policy where the rates are not known, where nothing is left to
// search for, or where nothing fits: planning it then says what is missing.
// Throws: Error kFlag, kPolicy: a share on a gpu that there is none of; kFlag: another flag that
// has no effect without a gpu, or beside --percent; kPolicy: KV budgets of a model with another
// number of layers.
Policy PolicyFor(const Config& config, const Model& model, const Machine& machine,
                 const Workload& work, const KernelNeeds& needs);

// Lengths without a number of requests: as many as a policy takes at a time.
bool IsEndless(const Config& config);

// Whether a search holds the weights in fewer bits too (--allow-4bit).
bool VariesWeights(const Config& config, const ModelShape& shape);

// All that the search for that policy finds.
// Requires: KnowsRates(machine). Throws: as PolicyFor.
SearchResult SearchFor(const Config& config, const Model& model, const Machine& machine,
                       const Workload& work, const KernelNeeds& needs);

}  // namespace spillway
