// The policy used where none is given: everything in CPU memory, the largest block that pays and
// fits. Thread rule: pure functions of values.
#pragma once

#include <cstdint>
#include <optional>

#include "spillway/plan.h"

namespace spillway {

// What the command line states outright; never changed.
struct GivenPolicy {
  std::optional<int64_t> gpu_batch_size;
  std::optional<int64_t> num_gpu_batches;
  std::optional<int64_t> prefill_chunk;
  DType kv_dtype = DType::kF16;
};

Policy DefaultPolicy(const ModelShape& shape, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs);

}  // namespace spillway
