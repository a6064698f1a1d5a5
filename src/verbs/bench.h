// The `bench` verb: one measured run on synthetic prompts, real or dummy weights.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns 0, or 21 when some rows failed. Throws: Error.
int RunBench(const Config& config);

}  // namespace spillway
