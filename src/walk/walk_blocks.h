// WalkBlocks: the loop of a run: block after block, pass after pass, cell after cell. What is done
// at each step is the walker's: the engine computes, the simulator lets time pass.
// Thread rule: one thread. Allocates nothing but what the walker does.
#pragma once

#include <concepts>
#include <cstdint>

#include "spillway/schedule.h"
#include "src/base/stop_signal.h"

namespace spillway {

// Steps of the walk, in this order.
template <typename W>
concept BlockWalker = requires(W walker, const Schedule& grid, const Cursor& at, const Task& task,
                               int64_t batch) {
  // Composes a block. Returns the number of its batches, none of them empty; 0 at the end.
  { walker.NextBlock() } -> std::same_as<int64_t>;
  // Lifetime: the grid is there as long as the block runs.
  walker.BeginBlock(grid);
  walker.Refill(batch);      // gives waiting requests the places of rows that have ended
  walker.BeginPass();        // all batches have their rows of the pass
  walker.BeginBatch(batch);  // whose first cell of the pass comes next
  { walker.TasksAt(grid, at) } -> std::same_as<TaskList>;
  { walker.HasRows(batch) } -> std::same_as<bool>;
  walker.Begin(task);  // a load or store
  walker.WaitForStores();
  walker.Compute(at);   // waits for the cell's loads first
  walker.EndBatch(at);  // its last cell is computed: its rows may end
  walker.EndCell();
  walker.EndPass();
  { walker.HasRows() } -> std::same_as<bool>;  // in any batch: the block goes on
};

// One pass of all batches.
template <BlockWalker Walker>
void WalkPass(const Schedule& grid, int64_t pass, Walker& walker) {
  for (Cursor at = {pass, 0, 0}; at.pass == pass; at = grid.Next(at)) {
    ThrowIfStopRequested();
    if (at.layer == 0) walker.BeginBatch(at.batch);
    for (const Task& task : walker.TasksAt(grid, at)) {
      if (task.kind != TaskKind::kCompute) {
        walker.Begin(task);
        if (grid.overlap == Overlap::kOff) walker.WaitForStores();
      } else if (walker.HasRows(at.batch)) {
        walker.Compute(at);
      }
    }
    if (grid.EndsBatch(at) && walker.HasRows(at.batch)) walker.EndBatch(at);
    walker.EndCell();
  }
}

// Walks blocks until there are no more. Throws: Error kInterrupted, and what the walker throws.
template <BlockWalker Walker>
void WalkBlocks(const Schedule& schedule, Walker& walker) {
  for (int64_t layer = 0; layer < schedule.weight_lookahead; ++layer) {
    if (schedule.overlap == Overlap::kOff) break;
    walker.Begin({TaskKind::kLoadWeights, {0, layer, 0}});
  }
  Schedule grid = schedule;
  while (const int64_t num_batches = walker.NextBlock()) {
    ThrowIfNothingMayBegin();
    grid.num_batches = num_batches;
    walker.BeginBlock(grid);
    for (int64_t pass = 0; walker.HasRows(); ++pass) {
      const bool refills = pass > 0 && !StopRequested();
      for (int64_t batch = 0; batch < num_batches && refills; ++batch) walker.Refill(batch);
      walker.BeginPass();
      WalkPass(grid, pass, walker);
      walker.EndPass();
    }
  }
  walker.WaitForStores();
}

}  // namespace spillway
