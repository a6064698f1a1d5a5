// A machine of a given size and kernels with simple needs, which tests of plans and policies plan
// for.
#pragma once

#include <cstdint>

#include "spillway/plan.h"

namespace spillway {

inline const KernelNeeds kNeeds = {
    [](int64_t rows, int64_t in, int) { return rows * in * 6; },
    [](int64_t slots, int64_t head_dim, int threads) { return slots * head_dim * threads; },
    [](int64_t slots, int64_t head_dim, int threads) { return 2 * slots * head_dim * threads; }};

inline Machine MachineWith(int64_t cpu_bytes, int64_t disk_bytes = 0) {
  Machine machine;
  machine.num_threads = 2;
  machine.cap_bytes[Tier::kCpu] = cpu_bytes;
  machine.cap_bytes[Tier::kDisk] = disk_bytes;
  return machine;
}

// All in CPU memory.
inline Policy Batches(int64_t rows, int64_t batches) {
  Policy policy;
  policy.weight_frac[Tier::kCpu] = policy.kv_frac[Tier::kCpu] = policy.activation_frac[Tier::kCpu] =
      1.0;
  policy.gpu_batch_size = rows;
  policy.num_gpu_batches = batches;
  return policy;
}

}  // namespace spillway
