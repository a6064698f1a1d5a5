#include "src/report/eta.h"

namespace spillway {

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
  // It took longer than that: what is left goes on as it went so far.
  if (done.settled_tokens <= 0 || expected_.tokens <= done.settled_tokens) return std::nullopt;
  return elapsed_s * static_cast<double>(expected_.tokens - done.settled_tokens) /
         static_cast<double>(done.settled_tokens);
}

}  // namespace spillway
