// Schedule: the order of loads, computes and stores, as a value. The stage between Plan and Trace.
// The zig-zag of design.md section 4 (FlexGen, Algorithm 1): a layer's weights serve all batches of
// the block. Plain values; any thread.
#pragma once

#include <cstdint>

namespace spillway {

// One cell of the grid that a run walks: this batch in this layer of this pass.
struct Cursor {
  int64_t pass = 0;
  int64_t layer = 0;
  int64_t batch = 0;

  bool operator==(const Cursor&) const = default;
};

struct Schedule {
  int64_t num_layers = 0;
  int64_t num_batches = 0;

  // The cell after `at`: batch, then layer, then pass. The one place where the grid wraps around.
  Cursor Next(Cursor at) const {
    if (++at.batch < num_batches) return at;
    at.batch = 0;
    if (++at.layer < num_layers) return at;
    at.layer = 0;
    ++at.pass;
    return at;
  }

  bool EndsBatch(const Cursor& at) const { return at.layer == num_layers - 1; }
  bool EndsPass(const Cursor& at) const { return EndsBatch(at) && at.batch == num_batches - 1; }
};

}  // namespace spillway
