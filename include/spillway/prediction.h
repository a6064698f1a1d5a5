// Prediction: what the cost model expects of a run, in the report beside what was measured.
// Plain values; any thread.
#pragma once

#include <string>

#include "spillway/compute_part.h"
#include "spillway/tier.h"  // PerLink

namespace spillway {

struct Prediction {
  double prefill_s = 0.0;
  double decode_s = 0.0;
  double generated_tokens_per_s = 0.0;
  std::string bound_by;  // the link or unit that is busy longest: "disk_read", "gpu matmul"

  PerLink<double> link_busy_s;
  PartSeconds parts;

  double total_s() const { return prefill_s + decode_s; }
};

}  // namespace spillway
