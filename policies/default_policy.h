// The policy used where none is given: everything in the device's memory when a block that pays
// fits there; otherwise weights on disk, the largest block, and as many weights in memory as is
// left. Thread rule: pure functions of values.
#pragma once

#include <cstdint>
#include <optional>

#include "spillway/plan.h"

namespace spillway {

// Shares of the tiers, each of the three summing to 1.
struct Placement {
  PerTier<double> weights;
  PerTier<double> kv;
  PerTier<double> activations;
};

// What the command line states outright; never changed.
struct GivenPolicy {
  std::optional<Placement> placement;
  std::optional<int64_t> gpu_batch_size;
  std::optional<int64_t> num_gpu_batches;
  std::optional<int64_t> prefill_chunk;
  KvPolicy kv;
  bool cpu_attention = false;
  DType kv_dtype = DType::kF16;
};

Policy DefaultPolicy(const ModelShape& shape, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs);

}  // namespace spillway
