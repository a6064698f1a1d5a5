// KvLogMoves: the moves between the log of KV on disk (KvLogPlan) and where it is staged, and what
// the CPU does on the way: a pass's changes are taken out of the staged rows before they are
// written, and put into them when they have come.
// Thread rule: the engine's thread; what is asked of a stream is done on the stream's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kv/kv_log.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "src/device/packed_batch.h"
#include "src/move/tiers.h"
#include "src/move/transfer_stream.h"

namespace spillway {

// The log of a batch in one decoder layer, where it is staged.
struct StagedLog {
  const KvLogPlan* plan = nullptr;
  std::byte* memory = nullptr;
  int64_t num_tokens = 0;  // of each row

  std::byte* State(int64_t place) const { return memory + place * plan->state_bytes; }
  std::byte* Token(int64_t index, int64_t place) const {
    return memory + plan->rows * plan->state_bytes +
           (index * plan->rows + place) * plan->token_bytes;
  }
};

// A run of a row on disk, staged.
struct LoggedRow {
  kernels::KvLogRow cache;
  int64_t place = 0;         // in the log
  int64_t state_offset = 0;  // bytes to the run's part of the row's states there
  int64_t token_offset = 0;  // and of each of its tokens
  int64_t num_tokens = 0;    // that were fed, the newest last
  int64_t num_logged = 0;    // of them, the last ones: what the log has that the cache lacks
};

class KvLogWork : public MoveWork {
 public:
  void Begin(const StagedLog& log) {
    log_ = log;
    rows_.clear();
  }
  void Add(const LoggedRow& row) { rows_.push_back(row); }
  void Reserve(int64_t rows) { rows_.reserve(static_cast<std::size_t>(rows)); }
  const std::vector<LoggedRow>& rows() const { return rows_; }

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

class KvLogMoves {
 public:
  // Lifetime: plan and tiers outlive this, and this the moves.
  KvLogMoves(const Plan& plan, const Tiers& tiers);

  // A cell of an attention layer, and where it is staged.
  struct Cell {
    Cursor at;
    std::size_t slot = 0;     // of the staging
    std::byte* kv = nullptr;  // the share of the disk
  };

  // How many of a row's newest tokens the log has and its blocks on disk lack, before the pass.
  int64_t NumLogged(const Cell& cell, const PackedRow& row) const;
  // Whether the log gets what the pass changes of the row, which is not written whole then.
  bool GoesToLog(const Cell& cell, const PackedRow& row) const;

  // Adds what the batch's rows need of the log, behind the moves that bring their blocks.
  // Requires: what was asked for in this slot before is done, unless the batch is empty.
  void AddIn(const Cell& cell, const PackedBatch& batch, std::vector<Move>& moves);
  // Adds what the pass changed of rows that are not written whole. Requires: as AddIn.
  void AddOut(const Cell& cell, const PackedBatch& batch, std::vector<Move>& moves);

  // The most moves that one of these adds.
  static int64_t MaxMoves(const Plan& plan);

 private:
  struct Run {  // places [0, num_places) of the states, or of a pass's tokens
    Scratch* scratch = nullptr;
    int64_t place_bytes = 0;
    int64_t first_place = 0;  // in the scratch
    int64_t num_places = 0;
    std::byte* staged = nullptr;
  };
  enum class Direction { kIn, kOut };

  StagedLog LogOf(const Cell& cell, int64_t num_tokens) const;
  // Adds the runs of a row that has been fed `num_tokens`.
  void AddRuns(const Cell& cell, const PackedBatch& batch, std::size_t row, const LoggedRow& logged,
               KvLogWork& work) const;
  void AddStates(const Cell& cell, int64_t num_places, Direction direction,
                 std::vector<Move>& moves) const;
  void AddTokens(const Cell& cell, int64_t index, int64_t num_places, Direction direction,
                 std::vector<Move>& moves) const;
  void AddRun(const Cell& cell, const Run& run, Direction direction,
              std::vector<Move>& moves) const;

  const Plan& plan_;
  const Tiers& tiers_;
  std::array<PutLogWork, kStagingSlots> put_;
  std::array<TakeLogWork, kStagingSlots> take_;
};

}  // namespace spillway
