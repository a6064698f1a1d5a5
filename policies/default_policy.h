// The policy used where none is given: everything in the device's memory when a block that pays
// fits there; otherwise weights on disk, the largest block, and as many weights in memory as is
// left. Thread rule: pure functions of values.
#pragma once

#include <cstdint>
#include <optional>

#include "policies/placement.h"
#include "spillway/plan.h"

namespace spillway {

// What the command line states outright; never changed.
struct GivenPolicy {
  std::optional<Placement> placement;
  std::optional<int64_t> gpu_batch_size;
  std::optional<int64_t> num_gpu_batches;
  std::optional<int64_t> prefill_chunk;
  std::optional<bool> cpu_attention;
  std::optional<DType> kv_dtype;
  std::optional<KvPolicy> kv;
};

Policy DefaultPolicy(const ModelShape& shape, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs);

}  // namespace spillway
