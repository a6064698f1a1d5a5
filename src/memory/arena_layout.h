// ArenaLayout: a bump allocator for an arena that is being sized; nothing is allocated.
// Plain values; any thread.
#pragma once

#include <cstdint>

#include "spillway/region.h"
#include "spillway/round.h"
#include "spillway/tier.h"
#include "spillway/tile.h"

namespace spillway {

inline constexpr int64_t kArenaAlignBytes = 64;  // a cache line

class ArenaLayout {
 public:
  ArenaLayout() = default;
  explicit ArenaLayout(int64_t align_bytes) : align_bytes_(align_bytes) {}

  // The next run, aligned.
  Region Take(int64_t bytes) {
    const Region region{end_, bytes};
    end_ += RoundUp(bytes, align_bytes_);
    return region;
  }
  Region TakeFloats(int64_t rows, int64_t cols) {
    return Take(rows * cols * int64_t{sizeof(float)});
  }
  // The next run in whole sectors of a disk, for what one reads or writes.
  Region TakeBlocks(int64_t bytes) {
    if (bytes > 0) end_ = RoundUp(end_, kTileAlignBytes);
    return Take(RoundUp(bytes, kTileAlignBytes));
  }
  int64_t end() const { return end_; }

 private:
  int64_t align_bytes_ = kArenaAlignBytes;
  int64_t end_ = 0;
};

// One for each tier.
using ArenaLayouts = PerTier<ArenaLayout>;

}  // namespace spillway
