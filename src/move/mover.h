// Mover: carries out the loads and stores of the schedule between the tiers, and says where the
// executor finds what it computes on. Loads and stores run on threads of their own, in the
// CellOrder that a simulation has too. Thread rule: the engine's thread. The steady state allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/kv_block_runs.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "src/device/cell_places.h"
#include "src/device/packed_batch.h"
#include "src/move/expert_moves.h"
#include "src/move/kv_log_moves.h"
#include "src/move/move_streams.h"
#include "src/move/tiers.h"
#include "src/move/transfer_stream.h"
#include "src/walk/cell_order.h"

namespace spillway {

class Mover {
 public:
  // `trace_log` null: nothing is traced. Lifetime: plan, tiers and log outlive the mover.
  Mover(const Plan& plan, const Tiers& tiers, TraceLog* trace_log = nullptr);

  // A block follows; its first pass is number `first_pass` of the run. Lifetime: the grid is there
  // as long as the block runs. Requires: none is between its first and last pass.
  void BeginBlock(const Schedule& grid, int64_t first_pass) {
    order_.BeginBlock(grid, first_pass);
    experts_.BeginBlock();
  }

  // Begins one load or store. The first load of weights of all must be the whole of layer 0.
  // Requires: not kCompute; `batch` is the cell's, packed for its pass.
  void Begin(const Task& task, const PackedBatch& batch);

  // Waits for the loads of a cell. Returns what it is computed on.
  // Throws: Error kIo, kCorrupt, kDiskSpace, of this or of an earlier load or store.
  CellPlaces WaitForLoads(const Cursor& at, const PackedBatch& batch);

  // Experts that a cell's rows chose (Executor::ChosenExperts), so that later loads of their
  // decoder layer in the pass leave out those that none did.
  void NoteExperts(const Cursor& at, std::span<const uint8_t> chosen) { experts_.Note(at, chosen); }

  // Waits for every store begun so far.
  void WaitForStores() { order_.WaitForStores(); }

  // Ends the run: drops the loads that nothing will wait for. links() is final afterwards.
  // Requires: stores have been waited for; nothing is begun any more.
  void Stop() { streams_.Stop(); }

  const WaitTotals& waits() const { return order_.waits(); }
  PerLink<LinkTotals> links() const { return streams_.links(); }
  DiskMending mending() const { return streams_.mending(); }

 private:
  enum class Direction { kIn, kOut };
  std::span<const Move> WeightMoves(const Task& task);
  std::span<const Move> RowMoves(const Task& task, const PackedBatch& batch);
  void AddKvIn(const Cursor& cell, const PackedBatch& batch);
  void AddKvOut(const Cursor& cell, const PackedBatch& batch);
  template <typename F>
  void AddKvSlots(const Cursor& cell, const PackedBatch& batch, std::size_t row,
                  Direction direction, F slots_of);
  void AddKvRuns(const Cursor& cell, const PackedBatch& batch, std::size_t row,
                 const KvBlockRange& blocks, Direction direction);
  KvLogMoves::Cell LogCellOf(const Cursor& cell) const;
  void AddHiddenRuns(const Cursor& cell, const PackedBatch& batch, Direction direction);
  std::byte* KvHome(Tier tier, int64_t batch, int64_t decoder_layer) const;
  std::byte* KvStaged(Tier tier, const Cursor& cell) const;
  std::byte* HiddenHome(Tier tier, int64_t batch) const;
  std::byte* HiddenStaged(const Cursor& cell, const PackedBatch& batch, Tier tier) const;
  int64_t KvClassOf(const Cursor& cell) const;
  const KvPlace& KvPlaceOf(const Cursor& cell, const PackedBatch& batch, std::size_t row) const;

  const Plan& plan_;
  const Tiers& tiers_;
  std::vector<std::vector<Move>> weight_moves_;  // [layer], in the store's order
  std::vector<Move> first_moves_;
  std::vector<Move> moves_;  // of the task that is begun
  ExpertMoves experts_;
  KvLogMoves kv_log_;
  MoveStreams streams_;
  CellOrder<MoveStreams> order_;
};

}  // namespace spillway
