// RunCalibrate: measures how much KV each layer needs and writes the budgets as a policy file.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns the process's exit status. Throws: Error as main reports it.
int RunCalibrate(const Config& config);

}  // namespace spillway
