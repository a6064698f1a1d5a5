// The `search` verb: the best policies for a model, a machine and a workload; runs nothing.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Prints the ten best, and writes the best one to --output. Returns 0.
// Throws: Error kMachine where the machine's rates are not known; kGpuMemory, kCpuMemory,
// kDiskSpace where no policy fits.
int RunSearch(const Config& config);

}  // namespace spillway
