// What tests of plans and policies plan for: a machine of a given size, requests that are alike,
// and kernels with simple needs.
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

inline Workload Requests(int64_t count, int64_t prompt, int64_t max_new) {
  Workload work;
  work.num_requests = count;
  work.sample.assign(static_cast<std::size_t>(count), {prompt, max_new});
  work.longest = {prompt, max_new};
  return work;
}

}  // namespace spillway
