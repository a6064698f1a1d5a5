// SizeRows: how many rows, KV slots and hidden states a batch has room for, tier by tier. The first
// step of a layout. Pure functions; any thread.
#pragma once

#include "spillway/plan.h"

namespace spillway {

// Sets the plan's batch, its number of batches, its KV classes and the sizes of its rows' shares.
// Requires: shape, machine and policy are set.
void SizeRows(Plan& plan, const Workload& work);

}  // namespace spillway
