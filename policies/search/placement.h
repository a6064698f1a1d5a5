// Placement: the shares of weights, KV and activations in each tier. Plain values; any thread.
#pragma once

#include "spillway/machine.h"
#include "spillway/policy.h"
#include "spillway/tier.h"

namespace spillway {

// Each sums to 1.
struct Placement {
  PerTier<double> weights;
  PerTier<double> kv;
  PerTier<double> activations;
};

// Tells whether all KV is off the GPU: where the CPU attends beside one. The two round differently,
// and with some rows here and some there a row's tokens would depend on its place.
inline bool KvLeavesGpu(const Machine& machine, const Policy& policy) {
  return machine.has_gpu() && policy.cpu_attention;
}

// Tells whether KV lies so that with CPU attention both would attend.
inline bool SharesAttention(const Machine& machine, const PerTier<double>& kv) {
  return machine.has_gpu() && kv[Tier::kGpu] > 0.0 && kv[Tier::kGpu] < 1.0;
}

}  // namespace spillway
