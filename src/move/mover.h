// Mover: carries out the loads and stores of the schedule between the tiers, and says where the
// executor finds what it computes on. Loads and stores run on threads of their own; what must wait
// for what is kept here, per place, as numbers of moves.
// Thread rule: the engine's thread. The steady state allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "src/device/cell_places.h"
#include "src/device/packed_batch.h"
#include "src/move/kv_log_moves.h"
#include "src/move/link_meter.h"
#include "src/move/tiers.h"
#include "src/move/transfer_stream.h"

namespace spillway {

class Mover {
 public:
  // `trace_log` null: nothing is traced. Lifetime: plan, tiers and log outlive the mover.
  Mover(const Plan& plan, const Tiers& tiers, TraceLog* trace_log = nullptr);

  // A block follows; its first pass is number `first_pass` of the run. Lifetime: the grid is there
  // as long as the block runs. Requires: none is between its first and last pass.
  void BeginBlock(const Schedule& grid, int64_t first_pass) {
    grid_ = &grid;
    first_pass_ = first_pass;
  }

  // Begins one load or store. The first load of weights of all must be the whole of layer 0.
  // Requires: not kCompute; `batch` is the cell's, packed for its pass.
  void Begin(const Task& task, const PackedBatch& batch);

  // Waits for the loads of a cell. Returns what it is computed on.
  // Throws: Error kIo, kCorrupt, kDiskSpace, of this or of an earlier load or store.
  CellPlaces WaitForLoads(const Cursor& at, const PackedBatch& batch);

  // Waits for every store begun so far.
  void WaitForStores();

  // Ends the run: drops the loads that nothing will wait for. links() is final afterwards.
  // Requires: stores have been waited for; nothing is begun any more.
  void Stop();

  const WaitTotals& waits() const { return waits_; }
  PerLink<LinkTotals> links() const;
  DiskMending mending() const;

 private:
  // Rows of one batch, staged: three places in turn. Numbers of moves that must be done before the
  // place may be filled again, and before it may be used.
  struct Staging {
    std::array<uint64_t, kStagingSlots> stored{};
    std::array<uint64_t, kStagingSlots> loaded{};
  };

  void LoadWeights(const Task& task);
  void LoadKv(const Cursor& cell, const PackedBatch& batch);
  void StoreKv(const Cursor& cell, const PackedBatch& batch);
  void LoadHidden(const Cursor& cell, const PackedBatch& batch);
  void StoreHidden(const Cursor& cell, const PackedBatch& batch);

  enum class Direction { kIn, kOut };
  struct BlockRange {  // blocks [begin, end) of a row's KV
    int64_t begin = 0;
    int64_t end = 0;
  };
  void AddKvRuns(const Cursor& cell, const PackedBatch& batch, std::size_t row,
                 const BlockRange& blocks, Direction direction);
  KvLogMoves::Cell LogCellOf(const Cursor& cell) const;
  void AddHiddenRuns(const Cursor& cell, const PackedBatch& batch, Direction direction);
  template <typename F>
  void Timed(double& waited_s, const TraceLabel& label, F wait);
  TraceLabel LabelOf(TraceSubject subject, const Cursor& cell) const;
  std::byte* KvHome(Tier tier, int64_t batch, int64_t block) const;
  std::byte* KvStaged(Tier tier, const Cursor& cell) const;
  std::byte* HiddenHome(Tier tier, int64_t batch) const;
  std::byte* HiddenStaged(const Cursor& cell, const PackedBatch& batch, Tier tier) const;
  const KvPlace& KvPlaceOf(const Cursor& cell, const PackedBatch& batch, std::size_t row) const;
  uint64_t& KvStored(const Cursor& cell);

  const Plan& plan_;
  const Tiers& tiers_;
  TraceLog* trace_log_;
  std::vector<std::vector<Move>> weight_moves_;  // [layer], in the store's order
  std::vector<Move> first_moves_;
  std::vector<uint64_t> weights_loaded_;  // [layer]
  bool first_loaded_ = false;
  const Schedule* grid_ = nullptr;  // of the block that runs
  int64_t first_pass_ = 0;          // of that block, in the run
  Staging kv_;
  Staging hidden_;
  std::vector<uint64_t> kv_stored_;      // [batch][block]: the last store of these rows
  std::vector<uint64_t> hidden_stored_;  // [batch]
  std::vector<Move> moves_;              // of the task that is being added
  KvLogMoves kv_log_;
  WaitTotals waits_;
  LinkMeter to_gpu_;  // of both streams that come in
  LinkMeter to_cpu_;
  TransferStream out_;
  TransferStream rows_in_;
  TransferStream weights_in_;
};

}  // namespace spillway
