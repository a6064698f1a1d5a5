// The `profile` verb: measures this machine and writes its machine file. Thread rule: the main
// thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns the exit status. Throws: Error, which main turns into one line.
int RunProfile(const Config& config);

}  // namespace spillway
