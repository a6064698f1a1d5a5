// RunFigures: what tables and charts show of one point: a few values of its report, and what
// follows from them. Pure functions of values; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/sweep/point_store.h"

namespace spillway {

// Where the decode passes stand under the machine's limits. The level is the link, or "memory" (the
// device's), that would be busy longest if everything went at full rate.
struct RoofPoint {
  std::string level;
  double flops_per_byte = 0.0;  // of that level's bytes
  double flops_per_s = 0.0;     // reached
  double level_bytes_per_s = 0.0;
  double matmul_flops_per_s = 0.0;
};

struct RunFigures {
  std::string name;   // what the point is, without its KV policy: "opt-30b, 512 + 32"
  std::string kv;     // "full", "h2o 20 %"; with the bits where they are not 16
  std::string fault;  // why there is nothing else; empty: there is
  std::string model;  // as the report has it
  std::string machine;
  std::string lengths;  // "512 + 32" tokens of a row, in the mean
  bool simulated = false;
  bool as_flexgen = false;    // on FlexGen's schedule
  double tokens_per_s = 0.0;  // generated
  std::optional<double> predicted_tokens_per_s;
  std::optional<RoofPoint> roof;  // where the machine's rates are known
  // Over the fastest run that keeps all KV, in the most bits that there are, of the same model,
  // lengths, machine and schedule.
  std::optional<double> speedup;
};

// One for each result, in their order. `varied` are the flags that tell the points apart.
std::vector<RunFigures> FiguresOf(const std::vector<PointResult>& results,
                                  const std::vector<std::string>& varied);

}  // namespace spillway
