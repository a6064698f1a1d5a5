// Prediction: what the cost model expects of a run, in the report beside what was measured.
// Plain values; any thread.
#pragma once

#include <string>
#include <vector>

#include "spillway/compute_part.h"
#include "spillway/tier.h"  // PerLink

namespace spillway {

// How far a run is after one of its passes, counted from its first.
struct CoursePoint {
  double prompt_tokens = 0.0;
  double decode_tokens = 0.0;  // beyond the first of each row
  double prefill_s = 0.0;
  double decode_s = 0.0;

  double total_s() const { return prefill_s + decode_s; }
};

struct Prediction {
  double prefill_s = 0.0;
  double decode_s = 0.0;
  double generated_tokens_per_s = 0.0;
  std::string bound_by;  // the link or unit that is busy longest: "disk_read", "gpu matmul"

  PerLink<double> link_busy_s;
  PartSeconds parts;

  // Passes in order; of a long run the first and last ones, between which it goes on evenly.
  std::vector<CoursePoint> course = {};

  double total_s() const { return prefill_s + decode_s; }
};

}  // namespace spillway
