// Checkpoint -> the plan's places, read once, without a second copy in memory.
// Thread rule: one call at a time; reads run on the pool's threads.
#pragma once

#include <span>

#include "kernels/thread_pool.h"
#include "spillway/plan.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"
#include "src/memory/arena.h"

namespace spillway {

enum class NonFiniteWeights { kRefuse, kAllow };

// Fills every tile of the plan. Elements are converted to the planned type where the file has
// another; a finite value that the planned type cannot hold is refused. Throws: Error kNonFinite,
// kModelUnsupported, and what Checkpoint::Read throws; kInterrupted between tiles.
void LoadWeights(const Plan& plan, const Checkpoint& checkpoint, const WeightMap& map,
                 const HostArena& arena, ThreadPool& pool, NonFiniteWeights nonfinite);

}  // namespace spillway
