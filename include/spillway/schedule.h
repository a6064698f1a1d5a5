// Schedule: the order of loads, computes and stores, as a value. The stage between Plan and Trace.
// The zig-zag of design.md section 4 (FlexGen, Algorithm 1): a layer's weights serve all batches of
// the block of batches. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
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

// Places that staged KV, and staged states, take in turn: one is computed on, one comes, one
// leaves.
inline constexpr std::size_t kStagingSlots = 3;

struct Schedule {
  std::vector<LayerKind> layers;  // the embedding, attention and MLP of each block, the head
  int64_t num_batches = 0;
  Overlap overlap = Overlap::kOn;
  int64_t weight_lookahead = 1;           // layers that weights are loaded ahead of their compute
  GridOrder order = GridOrder::kByLayer;  // kByBlock with overlap: weight_lookahead is 2 or more

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }

  // The cell after `at`: the layers of a group, then batch, then group, then pass. The one place
  // where the grid wraps around.
  Cursor Next(Cursor at) const {
    if (at.layer < GroupEnd(at.layer)) {
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

  // A group is what a batch goes through in one go: its number within the pass, its first and its
  // last layer.
  int64_t GroupOf(int64_t layer) const {
    return order == GridOrder::kByBlock ? (layer + 1) / 2 : layer;
  }
  int64_t num_groups() const { return GroupOf(num_layers() - 1) + 1; }
  int64_t GroupBegin(int64_t layer) const {
    return order == GridOrder::kByBlock && Is(LayerKind::kMlp, layer) ? layer - 1 : layer;
  }
  int64_t GroupEnd(int64_t layer) const {
    return order == GridOrder::kByBlock && Is(LayerKind::kAttention, layer) ? layer + 1 : layer;
  }

  // Where the KV of an attention cell is staged, and the states of a cell; those of a single batch
  // stay in one place.
  std::size_t KvSlot(const Cursor& attention) const {
    const int64_t blocks = attention.pass * (num_layers() / 2 - 1) + attention.layer / 2;
    return static_cast<std::size_t>(blocks * num_batches + attention.batch) % kStagingSlots;
  }
  std::size_t HiddenSlot(const Cursor& at) const {
    if (num_batches == 1) return 0;
    const int64_t groups = at.pass * num_groups() + GroupOf(at.layer);
    return static_cast<std::size_t>(groups * num_batches + at.batch) % kStagingSlots;
  }

  bool EndsBatch(const Cursor& at) const { return at.layer == num_layers() - 1; }
  bool EndsPass(const Cursor& at) const { return EndsBatch(at) && at.batch == num_batches - 1; }

  // What to begin at `at`. With overlap: the loads of what comes next, then this cell's compute,
  // then its stores; a later layer's weights are spread over this layer's batches, and the first
  // weight_lookahead layers of a run are begun before its first cell. Without: this cell's own
  // loads, compute and stores, each to be waited for.
  TaskList At(const Cursor& at) const;

 private:
  bool Is(LayerKind kind, int64_t layer) const {
    return layers[static_cast<std::size_t>(layer)] == kind;
  }
  bool IsAttention(const Cursor& at) const { return Is(LayerKind::kAttention, at.layer); }
  bool BeginsGroup(const Cursor& at) const { return GroupBegin(at.layer) == at.layer; }
  bool EndsGroup(const Cursor& at) const { return GroupEnd(at.layer) == at.layer; }
  TaskList Overlapped(const Cursor& at) const;
  TaskList Serial(const Cursor& at) const;
};

}  // namespace spillway
