// Checkpoint -> the plan's places in memory, read once, without a second copy.
// Thread rule: one call at a time; reads run on the pool's threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "spillway/plan.h"
#include "src/base/thread_pool.h"
#include "src/memory/arena.h"
#include "src/store/weight_reader.h"

namespace spillway {

// How tiles get to memory that the host cannot write to: through `staging`, kStagedReadBytes for
// each thread of the pool.
struct WeightUpload {
  std::span<std::byte> staging;
  std::function<void(std::byte* to, std::span<const std::byte> from)> copy;  // by any thread
};
inline constexpr int64_t kStagedReadBytes = 4 << 20;

// Fills every tile that the plan puts in the tier `tier`, of which `arena` is the memory.
// `upload` null: the arena is host memory. Throws: what WeightReader::Read and upload->copy throw.
void LoadWeights(const Plan& plan, Tier tier, const WeightReader& reader, const Arena& arena,
                 ThreadPool& pool, const WeightUpload* upload = nullptr);

}  // namespace spillway
