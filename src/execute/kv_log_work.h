// KvLogWork: what the CPU does to a staged batch whose rows on disk have a log (KvLogPlan): takes
// a pass's changes out of the rows before they are written, puts the log's into them when it has
// come. Filled by the engine's thread, done on a stream's; never both at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kv_log.h"
#include "spillway/plan.h"
#include "src/execute/transfer_stream.h"

namespace spillway {

// The log of a batch in one transformer block, where it is staged. `num_tokens`: of each row.
struct StagedLog {
  const KvLogPlan* plan = nullptr;
  std::byte* memory = nullptr;
  int64_t num_tokens = 0;

  std::byte* State(int64_t place) const { return memory + place * plan->state_bytes; }
  std::byte* Token(int64_t index, int64_t place) const {
    return memory + plan->rows * plan->state_bytes +
           (index * plan->rows + place) * plan->token_bytes;
  }
};

// A row on disk, staged.
struct LoggedRow {
  kernels::KvLogRow cache;
  int64_t place = 0;       // in the log
  int64_t num_tokens = 0;  // that were fed, the newest last
  int64_t num_logged = 0;  // of them, the last ones: what the log has that the cache lacks
};

class KvLogWork : public MoveWork {
 public:
  void Reserve(int64_t rows) { rows_.reserve(static_cast<std::size_t>(rows)); }
  void Begin(const StagedLog& log) {
    log_ = log;
    rows_.clear();
  }
  void Add(const LoggedRow& row) { rows_.push_back(row); }
  bool empty() const { return rows_.empty(); }

 protected:
  ~KvLogWork() = default;

  StagedLog log_;
  std::vector<LoggedRow> rows_;
};

// State and newest token of each row -> the log, as the last of its tokens.
class TakeLogWork final : public KvLogWork {
 public:
  void Do() noexcept override;
};

// State and logged tokens -> each row.
class PutLogWork final : public KvLogWork {
 public:
  void Do() noexcept override;
};

}  // namespace spillway
