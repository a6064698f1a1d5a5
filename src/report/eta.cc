#include "src/report/eta.h"

#include <cmath>

namespace spillway {

ExpectedWork ExpectedOf(const Workload& work, const Plan& plan,
                        const std::optional<Prediction>& predicted) {
  ExpectedWork expected = {work.num_requests, 0, plan.BlockRows(), std::nullopt};
  int64_t sampled = 0;
  for (const RequestShape& request : work.sample)
    sampled += request.prompt_logits - 1 + request.max_new_tokens;
  if (sampled > 0) {
    const double rows_per_sampled =
        static_cast<double>(work.num_requests) / static_cast<double>(work.sample.size());
    expected.tokens = std::llround(static_cast<double>(sampled) * rows_per_sampled);
  }
  if (predicted) expected.predicted_s = predicted->total_s();
  return expected;
}

void Eta::See(const WorkDone& done, double elapsed_s) {
  if (expected_.block_rows == 0 || done.rows / expected_.block_rows == blocks_done_) return;
  blocks_done_ = done.rows / expected_.block_rows;
  settled_tokens_ = done.settled_tokens;
  settled_in_s_ = elapsed_s;
}

std::optional<double> Eta::LeftSeconds(const WorkDone& done, double elapsed_s) const {
  std::optional<double> total_s = expected_.predicted_s;
  if (blocks_done_ > 0 && settled_tokens_ > 0) {
    total_s = settled_in_s_ * static_cast<double>(expected_.tokens) /
              static_cast<double>(settled_tokens_);
  }
  if (total_s && *total_s > elapsed_s) return *total_s - elapsed_s;
  // Slower than expected: the rest is taken to go on as it went so far.
  if (done.settled_tokens <= 0 || expected_.tokens <= done.settled_tokens) return std::nullopt;
  return elapsed_s * static_cast<double>(expected_.tokens - done.settled_tokens) /
         static_cast<double>(done.settled_tokens);
}

}  // namespace spillway
