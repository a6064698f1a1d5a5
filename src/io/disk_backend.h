// DiskBackend: starts single attempts to move bytes between memory and a disk file, and says what
// came of each. Knows nothing of tickets, retries or short transfers: those are DiskQueue's.
// Thread rule: Start from any thread, several at a time; the sink is called from the backend's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/disk_transfer.h"

namespace spillway {

// Who hears of the results.
class DiskSink {
 public:
  // `result` is what pread or pwrite would return, a negative errno for -1.
  virtual void Completed(int32_t id, int64_t result) noexcept = 0;

 protected:
  ~DiskSink() = default;
};

class DiskBackend {
 public:
  virtual ~DiskBackend() = default;

  virtual std::string_view name() const = 0;  // "io_uring", "threads"; for the report
  // Remarks for the user: why it is not io_uring, why buffers are not registered. May be
  // empty.
  virtual std::string note() const = 0;
  virtual int depth() const = 0;  // attempts it takes at a time

  // Called once, before the first Start. Lifetime: the sink outlives the backend.
  // Throws: Error kSystemLimit.
  virtual void Connect(DiskSink& sink) = 0;

  // Returns at once. The sink hears the result exactly once and never from this call. `id` is the
  // caller's name for the attempt.
  // Requires: fewer than depth() attempts in flight; none when the backend is destroyed.
  virtual void Start(int32_t id, const DiskRequest& request) = 0;
};

// kAuto is io_uring where the system has it and lets us, otherwise threads.
enum class DiskBackendKind { kAuto, kUring, kThreads };

struct DiskBackendOptions {
  DiskBackendKind kind = DiskBackendKind::kAuto;
  int depth = 32;
  int num_threads = 8;  // of the threads backend
  // Registered with io_uring, so that their pages are looked up once and not for every request;
  // they become resident as a whole. Memory elsewhere works too. Lifetime: outlive the backend.
  std::vector<std::span<std::byte>> buffers;
};

// Throws: Error kSystemLimit (no threads), kIo (kUring was asked for and is refused).
std::unique_ptr<DiskBackend> MakeDiskBackend(const DiskBackendOptions& options);

}  // namespace spillway
