// A machine of known rates and shares of its tiers, for tests of policies and runs.
#pragma once

#include "spillway/machine.h"
#include "spillway/tier.h"
#include "src/formats/machine_file.h"

namespace spillway::testing {

// The machine of the papers.
inline Machine T4() { return ReadMachine(SPILLWAY_SOURCE_DIR "/examples/machines/t4.json"); }

// The rest is on disk.
inline PerTier<double> Share(double gpu, double cpu) {
  PerTier<double> frac;
  frac[Tier::kGpu] = gpu;
  frac[Tier::kCpu] = cpu;
  frac[Tier::kDisk] = 1.0 - gpu - cpu;
  return frac;
}

}  // namespace spillway::testing
