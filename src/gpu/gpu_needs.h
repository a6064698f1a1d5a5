// Memory that a GPU's kernels need, and what they cannot compute, for plans made with or without a
// GPU at hand. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/plan.h"

namespace spillway {

// Attention's own memory is in the exchange, which is sized by rows and heads too.
KernelNeeds GpuNeeds();

// Throws: Error kModelUnsupported, kFlag: the plan is for a GPU, and its kernels cannot compute it.
void RefuseWhatGpuLacks(const Plan& plan);

// The lengths of rows that are multiplied, and how many of them at most.
std::vector<int64_t> ProductLengths(const Plan& plan);
int64_t MaxProductRows(const Plan& plan);

}  // namespace spillway
