// Schedule: the order of loads, computes and stores, as a value. The stage between Plan and Trace.
// The zig-zag of design.md section 4 (FlexGen, Algorithm 1): a layer's weights serve all batches of
// the block of batches. Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "spillway/model.h"  // LayerKind

namespace spillway {

// One cell of the grid that a run walks: this batch in this layer of this pass.
struct Cursor {
  int64_t pass = 0;
  int64_t layer = 0;
  int64_t batch = 0;

  bool operator==(const Cursor&) const = default;
};

// What is begun at a cell, in this order. A compute waits for its own loads; a load waits for the
// store that wrote what it reads, or that still reads the place it writes.
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

// What a batch goes through before the next batch does: the attention and the MLP of a block, so
// that a link has the time of both for the next batch's KV and the states between them stay where
// they are; or each layer by itself, as in FlexGen.
enum class GridOrder { kByBlock, kByLayer };

struct Schedule {
  std::vector<LayerKind> layers;
  int64_t num_batches = 0;
  Overlap overlap = Overlap::kOn;
  int64_t weight_lookahead = 1;           // layers that weights are loaded ahead of their compute
  GridOrder order = GridOrder::kByBlock;  // with overlap: weight_lookahead is 2 or more

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }

  // The cell after `at`: the layers of a group, then batch, then group, then pass. The one place
  // where the grid wraps around.
  Cursor Next(Cursor at) const {
    if (!EndsGroup(at)) {
      ++at.layer;
      return at;
    }
    if (++at.batch < num_batches) {
      at.layer = GroupBegin(at.layer);
      return at;
    }
    at.batch = 0;
    if (++at.layer < num_layers()) return at;
    at.layer = 0;
    ++at.pass;
    return at;
  }

  // A group is what a batch goes through in one go. Its number within the pass, its first layer.
  int64_t GroupOf(int64_t layer) const {
    if (order == GridOrder::kByLayer) return layer;
    return layer - std::count(layers.begin(), layers.begin() + layer + 1, LayerKind::kMlp);
  }
  int64_t num_groups() const { return GroupOf(num_layers() - 1) + 1; }
  bool EndsGroup(const Cursor& at) const {
    return order == GridOrder::kByLayer || !IsAttention(at);
  }

  bool EndsBatch(const Cursor& at) const { return at.layer == num_layers() - 1; }
  bool EndsPass(const Cursor& at) const { return EndsBatch(at) && at.batch == num_batches - 1; }

  // What to begin at `at`. With overlap: the loads of what comes next, then this cell's compute,
  // then its stores; a later layer's weights are spread over this layer's batches, and the first
  // weight_lookahead layers of a run are begun before its first cell. Without: this cell's own
  // loads, compute and stores, each to be waited for.
  TaskList At(const Cursor& at) const;

 private:
  bool IsAttention(const Cursor& at) const {
    return layers[static_cast<std::size_t>(at.layer)] == LayerKind::kAttention;
  }
  int64_t GroupBegin(int64_t layer) const {
    const bool follows = layers[static_cast<std::size_t>(layer)] == LayerKind::kMlp;
    return order == GridOrder::kByBlock && follows ? layer - 1 : layer;
  }
  bool BeginsGroup(const Cursor& at) const { return GroupBegin(at.layer) == at.layer; }
  // The first cell after those of this batch in its group.
  Cursor AfterGroup(Cursor at) const {
    while (!EndsGroup(at)) at = Next(at);
    return Next(at);
  }
  TaskList Overlapped(const Cursor& at) const;
  TaskList Serial(const Cursor& at) const;
};

}  // namespace spillway
