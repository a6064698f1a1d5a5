// The policy used where none is given: everything in the device's memory when a block that pays
// fits there; otherwise weights on disk, the largest block, and as many weights in memory as is
// left. Thread rule: pure functions of values.
#pragma once

#include "policies/given_policy.h"
#include "spillway/plan.h"

namespace spillway {

Policy DefaultPolicy(const ModelShape& shape, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs);

}  // namespace spillway
