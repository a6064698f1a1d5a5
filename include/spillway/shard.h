// Shard: one of several parts of a job, each of them a run of its own. A plain value; any thread.
#pragma once

#include <cstdint>

namespace spillway {

// Lines go by their number modulo `count`, so that parts have lines of like lengths. `index` counts
// from 0 or from 1, as the scheduler does that gives it: 0 and `count` are one shard.
struct Shard {
  int64_t index = 0;
  int64_t count = 1;

  int64_t remainder() const { return index % count; }
  bool Has(int64_t line) const { return line % count == remainder(); }
};

}  // namespace spillway
