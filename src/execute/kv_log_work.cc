#include "src/execute/kv_log_work.h"

namespace spillway {

void TakeLogWork::Do() noexcept {
  for (const LoggedRow& row : rows_) {
    kernels::TakeState(row.cache, log_.State(row.place));
    kernels::TakeToken(row.cache, row.num_tokens - 1, log_.Token(log_.num_tokens - 1, row.place));
  }
}

void PutLogWork::Do() noexcept {
  for (const LoggedRow& row : rows_) {
    const kernels::LoggedTokens tokens = {log_.Token(log_.num_tokens - row.num_logged, row.place),
                                          log_.plan->rows * log_.plan->token_bytes,
                                          row.num_tokens - row.num_logged};
    kernels::PutLog(row.cache, log_.State(row.place), tokens);
  }
}

}  // namespace spillway
