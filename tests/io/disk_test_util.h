// Folders, memory and queues for the tests of the disk tier.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/io/disk_queue.h"
#include "src/io/fault_backend.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace spillway::testing {

inline constexpr const char* kDiskRoot = "/tmp";
inline constexpr const char* kMemoryRoot = "/dev/shm";  // a tmpfs

// Zeroed, aligned to kDiskBlockBytes.
class BlockMemory {
 public:
  explicit BlockMemory(int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(static_cast<std::byte*>(std::aligned_alloc(kDiskBlockBytes, bytes_)), std::free) {
    std::memset(data_.get(), 0, bytes_);
  }
  std::span<std::byte> all() const { return {data_.get(), bytes_}; }
  std::span<std::byte> Part(int64_t offset, int64_t bytes) const {
    return all().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

inline void FillRandom(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t value = random();
    std::memcpy(&bytes[at], &value, std::min(sizeof(value), bytes.size() - at));
  }
}

inline bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

inline std::unique_ptr<DiskBackend> MakeBackend(DiskBackendKind kind, std::span<std::byte> arena,
                                                const std::string& faults, int depth = 8) {
  DiskBackendOptions options;
  options.kind = kind;
  options.depth = depth;
  options.num_threads = 4;
  if (!arena.empty()) options.buffers = {arena};
  std::unique_ptr<DiskBackend> backend = MakeDiskBackend(options);
  if (faults.empty()) return backend;
  return std::make_unique<FaultBackend>(std::move(backend), ParseFaultPlan(faults));
}

// True where this system lets us have a ring; the fallback is tested everywhere.
inline bool HasUring() {
  try {
    MakeBackend(DiskBackendKind::kUring, {}, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline void MoveBytes(DiskQueue& queue, const DiskRequest& request) {
  queue.Wait(queue.Submit({&request, 1}));
}

}  // namespace spillway::testing
