// Checkpoint -> the plan's places in memory, read once, without a second copy.
// Thread rule: one call at a time; reads run on the pool's threads.
#pragma once

#include "kernels/thread_pool.h"
#include "spillway/plan.h"
#include "src/memory/arena.h"
#include "src/model/weight_reader.h"

namespace spillway {

// Fills every tile that the plan puts in the tier `tier`, of which `arena` is the memory.
// Throws: what WeightReader::Read throws.
void LoadWeights(const Plan& plan, Tier tier, const WeightReader& reader, const Arena& arena,
                 ThreadPool& pool);

}  // namespace spillway
