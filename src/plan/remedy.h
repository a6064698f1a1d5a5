// RemedyFor: what to tell a user whose plan does not fit. Pure functions; any thread.
#pragma once

#include <string>

#include "spillway/plan.h"

namespace spillway {

// A plan that does not fit, and what it was made of.
struct Refused {
  const Model& model;
  const Plan& plan;
  const Workload& work;
  const KernelNeeds& needs;
};

// "--cpu-memory 9MiB": the flags with which the tier's cap is `bytes`, or more by less than a MiB.
std::string CapFor(const Machine& machine, Tier tier, int64_t bytes);

// The nearest change that fits: a shorter chunk, which costs least, a smaller block, both. Where
// none does, the caps that hold the plan. "--gpu-batch-size 8 --num-gpu-batches 1 fits".
std::string RemedyFor(const Refused& refused);

}  // namespace spillway
