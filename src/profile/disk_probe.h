// DiskProbe: reads and writes a file of its own as the engine does (requests of a tile's size,
// several in flight, O_DIRECT), to measure the disk tier's links. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "src/io/disk_folder.h"
#include "src/io/disk_pace.h"
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

  // Reads or writes for so many seconds, as DiskPace::Move does; bytes per second.
  double Read(double seconds) { return pace_->Move(kReads, seconds); }
  double Write(double seconds) { return pace_->Move(kWrites, seconds); }
  // Reads and writes as many bytes of each, both in flight; bytes per second of both together.
  double ReadAndWrite(double seconds) { return pace_->Move(kBoth, seconds); }

  // Memory that a probe takes.
  static int64_t MemoryBytes();

  // "io_uring", and why the file is not read directly where it is not.
  std::string Way() const;

 private:
  static constexpr std::array kReads = {DiskOp::kRead};
  static constexpr std::array kWrites = {DiskOp::kWrite};
  static constexpr std::array kBoth = {DiskOp::kRead, DiskOp::kWrite};

  DiskFile file_;
  HostArena memory_;
  std::unique_ptr<DiskQueue> queue_;
  std::optional<DiskPace> pace_;
};

}  // namespace spillway
