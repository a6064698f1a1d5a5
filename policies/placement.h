// Placement: the shares of weights, KV and activations in each tier. Plain values; any thread.
#pragma once

#include "spillway/tier.h"

namespace spillway {

// Each sums to 1.
struct Placement {
  PerTier<double> weights;
  PerTier<double> kv;
  PerTier<double> activations;
};

}  // namespace spillway
