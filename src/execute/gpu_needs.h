// GpuNeeds: what a GPU's kernels need of memory, for plans made with or without a GPU at hand.
#pragma once

#include "spillway/plan.h"

namespace spillway {

// Attention's own memory is in the exchange, which is sized by rows and heads too.
KernelNeeds GpuNeeds();

}  // namespace spillway
