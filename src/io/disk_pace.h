// DiskPace: how fast requests move between a file and memory as the engine moves them: of a tile's
// size, one more handed in than is under way, the checksum of each taken. Owns neither.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/io/disk_queue.h"

namespace spillway {

inline constexpr int64_t kPaceRequestBytes = int64_t{1} << 21;  // a tile of the store

class DiskPace {
 public:
  // Memory is gone through in turn, all of it. Requires: file and memory hold a request or more.
  // Lifetime: queue, file and memory outlive the pace.
  DiskPace(DiskQueue& queue, const DiskFile& file, std::span<std::byte> memory,
           int64_t request_bytes = kPaceRequestBytes);

  // Moves requests of these operations, in turns, for at least this long, from where the last call
  // ended, and waits for all of them, also where it fails. Returns bytes per second.
  // Throws: Error kIo, kDiskSpace, kInterrupted.
  double Move(std::span<const DiskOp> ops, double seconds);

 private:
  void Begin(DiskOp op, int64_t request);
  void Finish(int64_t request);
  void Drain() noexcept;
  DiskTicket& TicketOf(int64_t request);
  std::span<std::byte> MemoryOf(int64_t request) const;

  DiskQueue& queue_;
  const DiskFile& file_;
  std::span<std::byte> memory_;
  int64_t request_bytes_;
  int64_t num_slots_;  // of memory
  std::vector<DiskTicket> tickets_;
  int64_t next_request_ = 0;
  uint64_t checked_ = 0;  // keeps the checksums alive
};

}  // namespace spillway
