// The two halves of MakePlan, for those that compare many policies: place, then ask whether it
// fits. Thread rule: pure functions of values.
#pragma once

#include "spillway/plan.h"

namespace spillway {

// Places everything without looking at the caps.
Plan LayOut(const ModelShape& shape, const Machine& machine, const Workload& work,
            const Policy& policy, const KernelNeeds& needs);

// Whether each tier's arena is within its cap.
bool Fits(const Plan& plan);

}  // namespace spillway
