// One read or write on its way to completion: what to do after each attempt's result. The rules for
// short and interrupted transfers, in one place for every backend. Thread rule: one thread at a
// time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/io/disk_file.h"

namespace spillway {

enum class DiskOp { kRead, kWrite };

// Lifetime: file and memory outlive the request's completion; the memory is not looked at (read) or
// changed (write) before.
struct DiskRequest {
  DiskOp op = DiskOp::kRead;
  const DiskFile* file = nullptr;
  int64_t offset = 0;
  std::span<std::byte> memory;

  int64_t bytes() const { return static_cast<int64_t>(memory.size()); }
};

// Whether memory, offset and size are multiples of kDiskBlockBytes.
bool IsBlockAligned(const DiskRequest& request);

// Failure of a request; plain, so that it can be noted without allocating.
struct DiskFailure {
  DiskRequest request;
  int error = 0;  // errno; 0: the system moved no byte, several times
};

// The Error kIo or kDiskSpace for the failure, naming file, offset and reason.
// Requires: the file is still open.
[[noreturn]] void ThrowDiskFailure(const DiskFailure& failure);

// How long a system that says EAGAIN is left alone.
inline constexpr std::chrono::microseconds kPauseBetweenAttempts{200};

class DiskTransfer {
 public:
  // kPause: again, after kPauseBetweenAttempts.
  enum class Step { kFinished, kAgain, kPause, kFailed };

  DiskTransfer() = default;
  explicit DiskTransfer(const DiskRequest& request) : request_(request) {}

  const DiskRequest& request() const { return request_; }

  // The request of the next attempt. Requires: the last step was not kFinished.
  DiskRequest Remaining() const;

  // Takes note of an attempt's result: bytes moved, or a negative errno.
  //  - Short: goes on with the rest. From a direct file, a read that ends inside a disk block is
  //    done again as a whole, since the rest could not be asked for.
  //  - Three attempts that get no further: failed.
  //  - EINTR, EAGAIN: again, up to 10,000 times in a row.
  //  - EINVAL from a direct file: the file becomes buffered; once again.
  //  - EIO of a read: once again, for a remapped sector often comes back at once. Never of a write.
  Step Advance(int64_t result);

  DiskFailure failure() const { return {request_, error_}; }

 private:
  Step Fail(int error);
  Step AdvanceError(int error);
  Step NoProgress();

  DiskRequest request_;
  int64_t done_bytes_ = 0;
  int error_ = 0;
  int num_stuck_ = 0;          // attempts in a row without progress
  int num_interruptions_ = 0;  // in a row
  bool retried_error_ = false;
  bool retried_buffered_ = false;
};

}  // namespace spillway
