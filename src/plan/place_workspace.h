// Places of what is neither weights nor rows: workspace, bounce rings, the executor's exchange, and
// tables outside the arenas. Pure functions; any thread.
#pragma once

#include "spillway/plan.h"
#include "src/memory/arena_layout.h"

namespace spillway {

// Requires: weights and rows are placed.
void PlaceWorkspace(Plan& plan, const KernelNeeds& needs, ArenaLayouts& arenas);

// CPU memory outside the arenas: where keys are reflected or centred the reference prompt, unless
// the executor has it in its exchange; for the disk tier tags of blocks, the queue of requests, the
// store's table. Requires: arena_bytes are set.
int64_t TableBytes(const Plan& plan, const KernelNeeds& needs);

}  // namespace spillway
