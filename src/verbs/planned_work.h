// PlannedWork: the workload of a verb that runs nothing: --input's lengths, or the flags'.
// Thread rule: the main thread.
#pragma once

#include "spillway/workload.h"
#include "src/verbs/chain.h"  // Setting

namespace spillway {

// Throws: Error kFlag, kInput, kIo, and what refusing a model that cannot fit throws.
Workload PlannedWork(const Setting& setting);

}  // namespace spillway
