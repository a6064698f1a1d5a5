// Grid: the cells that a run walks, and the layers that a batch goes through in one go. What plan
// and schedule have in common. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {

// One cell of the grid that a run walks: this batch in this layer of this pass.
struct Cursor {
  int64_t pass = 0;
  int64_t layer = 0;
  int64_t batch = 0;

  bool operator==(const Cursor&) const = default;
};

// Layers that a batch goes through before the next batch does: all of one decoder layer, so
// that the next batch's KV can load while all of them compute and the states between them stay
// where they are; or each layer by itself, as in FlexGen.
enum class GridOrder { kByDecoderLayer, kByLayer };

// Places that staged KV, and staged states, take in turn: one is computed on, one comes, one
// leaves.
inline constexpr std::size_t kStagingSlots = 3;

// A layer within a pass. A group is what a batch goes through in one go.
struct GridLayer {
  bool attends = false;     // it reads and extends the KV cache
  int64_t attention = 0;    // layers before it that attend
  int64_t group = 0;        // its number within the pass
  int64_t group_begin = 0;  // its first layer
  int64_t group_end = 0;    // its last layer

  bool operator==(const GridLayer&) const = default;
};

}  // namespace spillway
