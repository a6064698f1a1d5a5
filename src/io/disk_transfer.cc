#include "src/io/disk_transfer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "spillway/error.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

constexpr int kMaxStuck = 3;
constexpr int kMaxInterruptions = 10'000;

}  // namespace

bool IsBlockAligned(const DiskRequest& request) {
  const auto address = reinterpret_cast<uintptr_t>(request.memory.data());
  const auto offset = static_cast<uint64_t>(request.offset);
  return (address | request.memory.size() | offset) % kDiskBlockBytes == 0;
}

DiskRequest DiskTransfer::Remaining() const {
  return {request_.op, request_.file, request_.offset + done_bytes_,
          request_.memory.subspan(static_cast<std::size_t>(done_bytes_))};
}

DiskTransfer::Step DiskTransfer::Advance(int64_t result) {
  if (result < 0) return AdvanceError(static_cast<int>(-result));
  num_interruptions_ = 0;
  SPILLWAY_CHECK(result <= request_.bytes() - done_bytes_);
  if (done_bytes_ + result == request_.bytes()) {
    if (retried_error_) request_.file->NoteRepeated();
    return Step::kFinished;
  }
  if (result == 0) return NoProgress();
  if (request_.file->direct() && result % kDiskBlockBytes != 0) {
    done_bytes_ = 0;
    return NoProgress();
  }
  done_bytes_ += result;
  num_stuck_ = 0;
  return Step::kAgain;
}

DiskTransfer::Step DiskTransfer::AdvanceError(int error) {
  switch (error) {
    case EINTR:
    case EAGAIN:
      if (++num_interruptions_ > kMaxInterruptions) return Fail(error);
      return error == EINTR ? Step::kAgain : Step::kPause;
    case EINVAL:
      // Another request may have made the file buffered between this one's start and now.
      if (std::exchange(retried_buffered_, true)) return Fail(error);
      request_.file->FallBackToBuffered();
      return Step::kAgain;
    case EIO:
      if (request_.op == DiskOp::kWrite || std::exchange(retried_error_, true)) return Fail(error);
      return Step::kAgain;
    default:
      return Fail(error);
  }
}

DiskTransfer::Step DiskTransfer::NoProgress() {
  return ++num_stuck_ < kMaxStuck ? Step::kAgain : Fail(0);
}

DiskTransfer::Step DiskTransfer::Fail(int error) {
  error_ = error;
  return Step::kFailed;
}

void ThrowDiskFailure(const DiskFailure& failure) {
  const DiskRequest& request = failure.request;
  const bool reads = request.op == DiskOp::kRead;
  const std::string what =
      fmt::format("{}: {} {} bytes at {}: {}", Printable(request.file->name()),
                  reads ? "reading" : "writing", request.bytes(), request.offset,
                  failure.error != 0 ? std::strerror(failure.error) : "the disk gives no progress");
  if (const std::string_view room = RoomAdvice(failure.error); !room.empty()) {
    throw Error(ErrorCode::kDiskSpace,
                fmt::format("{}; {} or give another --offload-dir", what, room));
  }
  throw Error(ErrorCode::kIo, what + "; check the disk");
}

}  // namespace spillway
