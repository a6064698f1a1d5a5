// CellOrder: what waits for what while a grid is walked. A compute waits for its loads, and for
// stores that still read the staging places it writes; a load waits for the store that wrote what
// it reads, or that still reads the place it fills. Kept per place as numbers of transfers, over
// any three streams: a run's, which move bytes, or a simulation's, on a clock of their own. Thread
// rule: one thread. The steady state allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/error.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "src/report/trace_event.h"  // TraceLabel

namespace spillway {

// A stream carries out its transfers one after the other.
enum class StreamKind { kWeightsIn, kRowsIn, kOut };

// Streams has:
//   uint64_t Add(StreamKind, transfer, const TraceLabel&, uint64_t after): the number of this
//     transfer in its stream, which begins after number `after` of kOut; of the last one before
//     where there is nothing to move.
//   void WaitFor(StreamKind, uint64_t number);
//   double now_s() const;
//   void NoteWait(const TraceLabel&, double begin_s, double end_s);
template <typename Streams>
class CellOrder {
 public:
  // Lifetime: plan and streams outlive this.
  CellOrder(const Plan& plan, Streams& streams)
      : plan_(plan),
        streams_(streams),
        weights_loaded_(plan.layers.size()),
        kv_stored_(static_cast<std::size_t>(plan.num_batches * plan.shape.num_layers)),
        hidden_stored_(static_cast<std::size_t>(plan.num_batches)) {}

  // A block follows; its first pass is number `first_pass` of the run. Lifetime: the grid is there
  // as long as the block runs. Requires: none is between its first and last pass.
  void BeginBlock(const Schedule& grid, int64_t first_pass) {
    grid_ = &grid;
    first_pass_ = first_pass;
  }

  // Begins a load or store; `transfer` is what the streams take. Requires: not kCompute.
  template <typename Transfer>
  void Begin(const Task& task, const Transfer& transfer) {
    switch (task.kind) {
      case TaskKind::kLoadWeights:
        return LoadWeights(task.cell, transfer);
      case TaskKind::kLoadKv:
        return LoadKv(task.cell, transfer);
      case TaskKind::kLoadHidden:
        return LoadHidden(task.cell, transfer);
      case TaskKind::kStoreKv:
        return StoreKv(task.cell, transfer);
      case TaskKind::kStoreHidden:
        return StoreHidden(task.cell, transfer);
      case TaskKind::kCompute:
        break;
    }
    SPILLWAY_CHECK(false);
  }

  // Waits for the loads of a cell, and for its staging places.
  void WaitForLoads(const Cursor& at);

  // Waits for every store begun so far.
  void WaitForStores();

  // Whether weights were loaded before: the first load of a run brings the embedding's own.
  bool HasLoadedWeights() const { return has_loaded_weights_; }

  // Whether a block has begun: weights are loaded before the first one.
  bool has_grid() const { return grid_ != nullptr; }
  const Schedule& grid() const { return *grid_; }  // of the block that runs
  const WaitTotals& waits() const { return waits_; }
  TraceLabel LabelOf(TraceSubject subject, const Cursor& cell) const {
    const bool of_all_batches = subject == TraceSubject::kWeights;
    return {subject, {first_pass_ + cell.pass, cell.layer, of_all_batches ? -1 : cell.batch}};
  }

 private:
  // Numbers of transfers for each of the staging places: the last that stored from it, and the last
  // that loaded into it.
  struct Staging {
    std::array<uint64_t, kStagingSlots> stored{};
    std::array<uint64_t, kStagingSlots> loaded{};
  };

  template <typename Transfer>
  void LoadWeights(const Cursor& cell, const Transfer& transfer) {
    weights_loaded_[static_cast<std::size_t>(cell.layer)] =
        streams_.Add(StreamKind::kWeightsIn, transfer, LabelOf(TraceSubject::kWeights, cell), 0);
    has_loaded_weights_ = true;
  }

  template <typename Transfer>
  void LoadKv(const Cursor& cell, const Transfer& transfer) {
    const std::size_t place = grid_->KvSlot(cell);
    kv_.loaded[place] =
        streams_.Add(StreamKind::kRowsIn, transfer, LabelOf(TraceSubject::kKv, cell),
                     std::max(kv_.stored[place], KvStored(cell)));
  }

  template <typename Transfer>
  void LoadHidden(const Cursor& cell, const Transfer& transfer) {
    const std::size_t place = grid_->HiddenSlot(cell);
    hidden_.loaded[place] =
        streams_.Add(StreamKind::kRowsIn, transfer, LabelOf(TraceSubject::kHidden, cell),
                     std::max(hidden_.stored[place], HiddenStored(cell)));
  }

  // One store of these rows at a time: a row that has just come loaded nothing, so nothing else
  // waited for the store before.
  template <typename Transfer>
  void StoreKv(const Cursor& cell, const Transfer& transfer) {
    const TraceLabel label = LabelOf(TraceSubject::kKv, cell);
    Timed(waits_.stores_s, label, [&] { streams_.WaitFor(StreamKind::kOut, KvStored(cell)); });
    kv_.stored[grid_->KvSlot(cell)] = KvStored(cell) =
        streams_.Add(StreamKind::kOut, transfer, label, 0);
  }

  template <typename Transfer>
  void StoreHidden(const Cursor& cell, const Transfer& transfer) {
    hidden_.stored[grid_->HiddenSlot(cell)] = HiddenStored(cell) =
        streams_.Add(StreamKind::kOut, transfer, LabelOf(TraceSubject::kHidden, cell), 0);
  }

  template <typename F>
  void Timed(double& waited_s, const TraceLabel& label, F wait) {
    const double begin_s = streams_.now_s();
    wait();
    const double end_s = streams_.now_s();
    if (end_s == begin_s) return;
    waited_s += end_s - begin_s;
    streams_.NoteWait(label, begin_s, end_s);
  }

  void WaitForPlace(const Staging& staging, std::size_t place) {
    streams_.WaitFor(StreamKind::kRowsIn, staging.loaded[place]);
    // Waits for stores too: what the compute writes must not be on its way out any more.
    streams_.WaitFor(StreamKind::kOut, staging.stored[place]);
  }

  uint64_t& KvStored(const Cursor& cell) {
    return kv_stored_[static_cast<std::size_t>(cell.batch * plan_.shape.num_layers +
                                               plan_.DecoderLayerOf(cell))];
  }
  uint64_t& HiddenStored(const Cursor& cell) {
    return hidden_stored_[static_cast<std::size_t>(cell.batch)];
  }

  const Plan& plan_;
  Streams& streams_;
  const Schedule* grid_ = nullptr;
  int64_t first_pass_ = 0;  // of the block, in the run
  bool has_loaded_weights_ = false;
  std::vector<uint64_t> weights_loaded_;  // [layer]
  Staging kv_;
  Staging hidden_;
  std::vector<uint64_t> kv_stored_;      // [batch][block]: the last store of these rows
  std::vector<uint64_t> hidden_stored_;  // [batch]
  WaitTotals waits_;
};

template <typename Streams>
void CellOrder<Streams>::WaitForLoads(const Cursor& at) {
  Timed(waits_.weights_s, LabelOf(TraceSubject::kWeights, at), [&] {
    streams_.WaitFor(StreamKind::kWeightsIn, weights_loaded_[static_cast<std::size_t>(at.layer)]);
  });
  // KV is asked for before the states of its cell: the wait for both is one for KV.
  if (plan_.layers[static_cast<std::size_t>(at.layer)].attends) {
    Timed(waits_.kv_s, LabelOf(TraceSubject::kKv, at),
          [&] { WaitForPlace(kv_, grid_->KvSlot(at)); });
  }
  Timed(waits_.hidden_s, LabelOf(TraceSubject::kHidden, at),
        [&] { WaitForPlace(hidden_, grid_->HiddenSlot(at)); });
}

template <typename Streams>
void CellOrder<Streams>::WaitForStores() {
  Timed(waits_.stores_s, {TraceSubject::kStores}, [&] {
    for (const uint64_t stored : kv_.stored) streams_.WaitFor(StreamKind::kOut, stored);
    for (const uint64_t stored : hidden_.stored) streams_.WaitFor(StreamKind::kOut, stored);
  });
}

}  // namespace spillway
