// The arenas of a run on a GPU: its memory, and host memory that its copy engines reach.
// Needs no toolkit to include. Thread rule: construct and destroy on one thread; views may be used
// from any.
#pragma once

#include "src/memory/arena.h"

namespace spillway {

// GPU memory. Views are addresses for copies and kernels: the host can neither read nor write them.
class DeviceArena final : public Arena {
 public:
  // Throws: Error kGpuMemory with asked, free and total bytes; kGpu.
  explicit DeviceArena(int64_t bytes);
  ~DeviceArena() override;

  int64_t ResidentBytes() const override { return 0; }  // none of it is host memory
};

// Host memory that is pinned as a whole: a copy to or from it overlaps with everything else.
class PinnedArena final : public Arena {
 public:
  // Takes all pages at once. Throws: Error kCpuMemory, kSystemLimit, kGpu.
  explicit PinnedArena(int64_t bytes);
  ~PinnedArena() override;

  int64_t ResidentBytes() const override { return bytes(); }

 private:
  HostArena memory_;
};

}  // namespace spillway
