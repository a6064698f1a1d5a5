// Machine: what there is to plan with. Probed for the memory of this host.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "spillway/tier.h"

namespace spillway {

struct Machine {
  std::string name;            // the processor, and the GPU when there is one
  std::string isa;             // what the CPU kernels use: "amx", "avx512", "avx2", "portable"
  int num_threads = 1;         // compute threads
  Tier device = Tier::kCpu;    // where layers are computed; kGpu also when it is emulated
  PerTier<int64_t> cap_bytes;  // hard caps of this run
};

}  // namespace spillway
