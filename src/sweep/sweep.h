// The `sweep` verb: a grid of bench or simulate runs -> a report each, and a table. Thread rule:
// the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Points that an earlier sweep finished in --output are not run again. Returns 0, or 21 when some
// point could not run: it is a row with its reason.
// Throws: Error kFlag, kMachine, kPolicy: what is wrong with the grid file; kInterrupted: stopped,
// the same command goes on; what PointStore throws.
int RunSweep(const Config& config);

}  // namespace spillway
