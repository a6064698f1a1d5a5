// The `convert` verb: checkpoint -> store, a folder that needs no other.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns 0. Throws: Error; then nothing is left behind.
int RunConvert(const Config& config);

}  // namespace spillway
