// Arena: the one owner of a tier's bytes in this process; everything else is a view into it.
// Thread rule: construct and destroy on one thread; views may be used from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/error.h"
#include "spillway/region.h"

namespace spillway {

// Base of all arenas: one run of addresses. The host can only pass on those of a GPU's memory.
class Arena {
 public:
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int64_t bytes() const { return bytes_; }

  // Host memory that the system has given pages for.
  virtual int64_t ResidentBytes() const = 0;

  // Requires: the region lies inside the arena.
  std::span<std::byte> View(const Region& region) const {
    SPILLWAY_CHECK(region.offset >= 0 && region.bytes >= 0 &&
                   region.offset + region.bytes <= bytes_);
    return {base_ + region.offset, static_cast<std::size_t>(region.bytes)};
  }

  template <typename T>
  T* As(const Region& region) const {
    return reinterpret_cast<T*>(View(region).data());
  }

 protected:
  Arena() = default;
  std::byte* base() const { return base_; }
  // Gives the arena its memory; it is empty until then.
  void Set(std::byte* base, int64_t bytes) {
    base_ = base;
    bytes_ = bytes;
  }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

// Anonymous memory, page-aligned, with huge pages where the system gives them.
class HostArena final : public Arena {
 public:
  // Reserves `bytes`; pages come on first touch. Throws: Error kCpuMemory; kSystemLimit
  // (ulimit -v).
  explicit HostArena(int64_t bytes);
  ~HostArena() override;

  int64_t ResidentBytes() const override;
};

}  // namespace spillway
