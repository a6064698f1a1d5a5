// Names of points in the table of a sweep and in charts of it. Pure functions of values; any
// thread.
#pragma once

#include <string>
#include <vector>

#include "src/sweep/grid.h"

namespace spillway {

// "opt-30b, 512 + 32, gpu-batch-size 48" of each point: the flags of `varied` that it takes to tell
// points apart that are alike in `kv`; model and lengths come first.
// Requires: one of `kv` for each point.
std::vector<std::string> PointNames(const std::vector<SweepPoint>& points,
                                    const std::vector<std::string>& kv,
                                    const std::vector<std::string>& varied);

}  // namespace spillway
