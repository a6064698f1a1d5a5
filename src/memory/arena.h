// Arena: the one owner of a tier's bytes in this process; everything else is a view into it.
// Thread rule: construct and destroy on one thread; views may be used from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/plan.h"  // Region

namespace spillway {

// Anonymous memory, page-aligned, with huge pages where the system gives them.
class HostArena {
 public:
  // Reserves `bytes`; pages come on first touch. Throws: Error kCpuMemory; kSystemLimit
  // (ulimit -v).
  explicit HostArena(int64_t bytes);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  int64_t bytes() const { return bytes_; }

  // What the system has given pages for.
  int64_t ResidentBytes() const;

  // Requires: the region lies inside the arena.
  std::span<std::byte> View(const Region& region) const;

  template <typename T>
  T* As(const Region& region) const {
    return reinterpret_cast<T*>(View(region).data());
  }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace spillway
