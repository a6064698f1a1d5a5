// Schedule: the order of loads, computes and stores, as a value. The stage between Plan and Trace.
// The zig-zag of docs/design.md, "The schedule" (FlexGen, Algorithm 1): a layer's weights serve all
// batches of the block of batches. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/grid.h"
#include "spillway/plan.h"

namespace spillway {

// Kinds of work begun at a cell, in this order. A compute waits for its own loads; a load waits for
// the store that wrote what it reads, or that still reads the place it writes.
enum class TaskKind { kLoadKv, kLoadHidden, kLoadWeights, kCompute, kStoreKv, kStoreHidden };

struct Task {
  TaskKind kind = TaskKind::kCompute;
  Cursor cell;        // what it is for; of weights only the layer counts
  int64_t share = 0;  // of weights: this part of num_shares
  int64_t num_shares = 1;

  bool operator==(const Task&) const = default;
};

// The tasks of one cell. At most one of each kind, so no memory is taken for them.
class TaskList {
 public:
  void Add(const Task& task) { tasks_[static_cast<std::size_t>(size_++)] = task; }
  const Task* begin() const { return tasks_.data(); }
  const Task* end() const { return tasks_.data() + size_; }

 private:
  std::array<Task, 6> tasks_;
  int64_t size_ = 0;
};

enum class Overlap { kOn, kOff };

struct Schedule {
  std::vector<GridLayer> layers;
  int64_t num_batches = 0;
  Overlap overlap = Overlap::kOn;
  // Layers that weights are loaded ahead of their compute; with overlap at least as many as the
  // longest group has.
  int64_t weight_lookahead = 1;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  const GridLayer& Layer(int64_t layer) const { return layers[static_cast<std::size_t>(layer)]; }

  // The cell after `at`: the layers of a group, then batch, then group, then pass. The one place
  // where the grid wraps around.
  Cursor Next(Cursor at) const {
    const GridLayer& layer = Layer(at.layer);
    if (at.layer < layer.group_end) {
      ++at.layer;
      return at;
    }
    if (++at.batch < num_batches) {
      at.layer = layer.group_begin;
      return at;
    }
    at.batch = 0;
    if (++at.layer < num_layers()) return at;
    at.layer = 0;
    ++at.pass;
    return at;
  }

  int64_t num_groups() const { return layers.back().group + 1; }
  int64_t num_attentions() const {
    return layers.back().attention + (layers.back().attends ? 1 : 0);
  }

  // Staging place of the KV of a cell that attends, and of the states of a cell; those of a single
  // batch stay in one place.
  std::size_t KvSlot(const Cursor& at) const {
    const int64_t attentions = at.pass * num_attentions() + Layer(at.layer).attention;
    return static_cast<std::size_t>(attentions * num_batches + at.batch) % kStagingSlots;
  }
  std::size_t HiddenSlot(const Cursor& at) const {
    if (num_batches == 1) return 0;
    const int64_t groups = at.pass * num_groups() + Layer(at.layer).group;
    return static_cast<std::size_t>(groups * num_batches + at.batch) % kStagingSlots;
  }

  bool EndsBatch(const Cursor& at) const { return at.layer == num_layers() - 1; }

  // Tasks to begin at `at`. With overlap: the loads of what comes next, then this cell's compute,
  // then its stores; a later layer's weights are spread over this layer's batches, and the first
  // weight_lookahead layers of a run are begun before its first cell. Without: this cell's own
  // loads, compute and stores, each to be waited for.
  TaskList At(const Cursor& at) const;

 private:
  bool Attends(const Cursor& at) const { return Layer(at.layer).attends; }
  bool BeginsGroup(const Cursor& at) const { return Layer(at.layer).group_begin == at.layer; }
  bool EndsGroup(const Cursor& at) const { return Layer(at.layer).group_end == at.layer; }
  TaskList Overlapped(const Cursor& at) const;
  TaskList Serial(const Cursor& at) const;
};

// The zig-zag over a plan's layers and batches.
Schedule MakeSchedule(const Plan& plan, Overlap overlap = Overlap::kOn);

}  // namespace spillway
