// The `plan` verb: where every byte would go and whether it fits; loads and runs nothing.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns 0. Throws: Error kGpuMemory, kCpuMemory, kDiskSpace where a run would.
int RunPlan(const Config& config);

}  // namespace spillway
