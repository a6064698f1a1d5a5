// Places of rows: KV and hidden states in their tiers, what is staged of them, and the order of the
// grid that follows from it. Pure functions; any thread.
#pragma once

#include "spillway/plan.h"
#include "src/memory/arena_layout.h"

namespace spillway {

// Order in which the grid is walked. By block, rows of the next batch have longer to come, but
// staged weights take more room. That pays where there is more than one batch and KV or states of
// some batches move, or where the CPU attends to one batch while the GPU has the MLP of another.
GridOrder OrderOf(const Plan& plan);

// Requires: SizeRows.
void PlaceRows(Plan& plan, ArenaLayouts& arenas);

// K, V and states of the prefix that the plan holds, if any.
void PlacePrefix(Plan& plan, ArenaLayout& device);

// The log of KV on disk, where the plan is to have one; its staging is CPU memory.
// Requires: PlaceRows.
void PlaceKvLog(Plan& plan, const Workload& work, ArenaLayout& cpu);

}  // namespace spillway
