// DiskProbe: reads and writes a file of its own as the engine does (requests of a tile's size,
// several in flight, O_DIRECT), to measure the disk tier's links. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "src/io/disk_folder.h"
#include "src/io/disk_queue.h"
#include "src/memory/arena.h"

namespace spillway {

class DiskProbe {
 public:
  // Makes a file without a name of `file_bytes` and writes it once, so that no request of a
  // measurement meets a block that was never written.
  // Throws: Error kDiskSpace, kPath, kIo, kCpuMemory, kSystemLimit, kInterrupted.
  DiskProbe(const DiskFolder& folder, int64_t file_bytes);
  ~DiskProbe();

  // Moves requests for at least this long, from where the last call ended, takes the checksum of
  // each as the engine does, and waits for all of them. Returns bytes per second. Throws: Error
  // kIo, kDiskSpace, kInterrupted.
  double Read(double seconds) { return Move(kReads, seconds); }
  double Write(double seconds) { return Move(kWrites, seconds); }
  // As many bytes of each, both in flight; bytes per second of both together.
  double ReadAndWrite(double seconds) { return Move(kBoth, seconds); }

  // What a probe takes.
  static int64_t MemoryBytes();

  // "io_uring", and why the file is not read directly where it is not.
  std::string Way() const;

 private:
  static constexpr std::array kReads = {DiskOp::kRead};
  static constexpr std::array kWrites = {DiskOp::kWrite};
  static constexpr std::array kBoth = {DiskOp::kRead, DiskOp::kWrite};

  double Move(std::span<const DiskOp> ops, double seconds);  // in turns
  DiskTicket Begin(DiskOp op, int64_t request);
  std::span<std::byte> Memory(int64_t request) const;

  DiskFile file_;
  HostArena memory_;
  std::unique_ptr<DiskQueue> queue_;
  int64_t next_request_ = 0;
  uint64_t checked_ = 0;  // keeps the checksums alive
};

}  // namespace spillway
