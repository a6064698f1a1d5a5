// Checks of a verb's flags taken together, beyond what each flag may be. Plain functions; any
// thread.
#pragma once

#include "src/config/config.h"
#include "src/config/sources.h"

namespace spillway {

// Sets what follows for the verb: calibrate's KV policy, the path of inspect, the grid of a sweep.
// Requires: ResolveKv. Throws: Error kFlag.
void CheckVerb(Config& config, const Stated& stated);

}  // namespace spillway
