// The policy used where none is given: everything in the device's memory when a block that pays
// fits there; otherwise weights on disk, the largest block, and as many weights in memory as is
// left; where memory does not hold the rows of such a block, KV and activations on disk as well, as
// far as need be. Thread rule: pure functions of values.
#pragma once

#include "policies/search/given_policy.h"
#include "spillway/plan.h"

namespace spillway {

// Chooses what is not given. When any placement in whole tiers of the given shape fits, what comes
// back fits; otherwise its plan's refusal names the least that is needed.
Policy DefaultPolicy(const Model& model, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs);

}  // namespace spillway
