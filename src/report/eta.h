// Eta: how long a run still takes. Until a block's worth of rows has ended the cost model says it;
// from then on the rate at which whole blocks were done. Within a block neither prefill nor decode
// stands for the rest. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "spillway/plan.h"
#include "spillway/prediction.h"
#include "spillway/workload.h"

namespace spillway {

// Work of the whole run, as far as the scan of the input could tell.
struct ExpectedWork {
  int64_t rows = 0;
  int64_t tokens = 0;                 // sum of max_tokens
  int64_t block_rows = 0;             // of a full block; 0: not known
  std::optional<double> predicted_s;  // from the first pass to the last
};

// A sample's tokens are scaled to all requests. `predicted` nullopt: nothing is known of the
// machine.
ExpectedWork ExpectedOf(const Workload& work, const Plan& plan,
                        const std::optional<Prediction>& predicted);

struct WorkDone {
  int64_t rows = 0;
  int64_t rows_running = 0;
  int64_t generated_tokens = 0;
  int64_t settled_tokens = 0;  // generated, and those that ended rows no longer need
};

class Eta {
 public:
  Eta() = default;
  explicit Eta(const ExpectedWork& expected) : expected_(expected) {}

  // Called often, so that the end of a block is not missed. Both arguments count from the first
  // pass.
  void See(const WorkDone& done, double elapsed_s);

  // nullopt: nothing is known yet.
  std::optional<double> LeftSeconds(const WorkDone& done, double elapsed_s) const;

 private:
  ExpectedWork expected_;
  int64_t blocks_done_ = 0;     // rows that have ended, in full blocks
  int64_t settled_tokens_ = 0;  // when the last of them did
  double settled_in_s_ = 0.0;
};

}  // namespace spillway
