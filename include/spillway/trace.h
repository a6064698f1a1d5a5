// Trace: what happened, in totals that do not grow with the run. The stage between Schedule and
// Report. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "spillway/tier.h"

namespace spillway {

struct PhaseTotals {
  double seconds = 0.0;
  int64_t passes = 0;
  int64_t prompt_tokens = 0;     // processed
  int64_t generated_tokens = 0;  // sampled
};

struct Trace {
  double load_s = 0.0;
  PhaseTotals prefill;  // passes in which some row's prompt was processed
  PhaseTotals decode;
  int64_t num_blocks = 0;  // of rows
  int64_t num_rows = 0;
  int64_t kv_bytes = 0;       // largest block
  int64_t slots_per_row = 0;  // longest row
  PerTier<int64_t> peak_bytes;
};

}  // namespace spillway
