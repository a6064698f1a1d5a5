// RunFigures: what the table of a sweep says of one point beside the values of its report: names,
// and what follows from several reports. Pure functions of values; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/sweep/point_store.h"

namespace spillway {

// Place of the decode passes under the machine's limits. The level is the link, or "memory" (the
// device's), that would be busy longest if everything went at full rate.
struct RoofPoint {
  std::string level;
  double flops_per_byte = 0.0;  // of that level's bytes
  double flops_per_s = 0.0;     // reached
  double level_bytes_per_s = 0.0;
  double matmul_flops_per_s = 0.0;
};

struct RunFigures {
  std::string name;               // the point without its KV policy: "opt-30b, 512 + 32"
  std::string kv;                 // "full", "h2o 20 %"; with the bits where they are not 16
  std::optional<RoofPoint> roof;  // where the machine's rates are known
  // Speedup over the fastest run that keeps all KV, in the most bits that there are, of the same
  // model, lengths and machine, and alike in all else that points set but their block: the same
  // caps, threads, schedule, and placement where one has it.
  std::optional<double> speedup;
};

// One for each result, in their order. `varied` are the flags that tell the points apart.
std::vector<RunFigures> FiguresOf(const std::vector<PointResult>& results,
                                  const std::vector<std::string>& varied);

}  // namespace spillway
