// The `simulate` verb: the schedule on a virtual clock, for any machine whose rates are known.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Writes --report and --trace as a run would. Returns 0.
// Throws: Error kMachine where the rates are not known; kGpuMemory, kCpuMemory, kDiskSpace where a
// run would.
int RunSimulate(const Config& config);

}  // namespace spillway
