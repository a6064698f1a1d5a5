// CudaCopyQueue: a stream of asynchronous copies, each timed by two events.
#pragma once

#include <array>
#include <cstdint>

#include "src/cuda/compute_queue.h"
#include "src/cuda/stream.h"
#include "src/device/copy_queue.h"

namespace spillway {

class CudaCopyQueue final : public CopyQueue {
 public:
  // Lifetime: `computes` outlives the queue. Throws: Error kGpu.
  CudaCopyQueue(const ComputeQueue& computes, int gpu) : computes_(computes), gpu_(gpu) {}

  uint64_t Mark() const override { return computes_.num_computes(); }
  bool Reached(uint64_t mark) const override;
  void WaitFor(uint64_t mark) const override;
  // Requires: fewer than kMaxCopies begun and not finished; host memory that is pinned.
  void Begin(DeviceCopy& copy) override;
  CopyTimes Finish(const DeviceCopy& copy) override;

  static constexpr uint64_t kMaxCopies = 16;

 private:
  struct Span {
    Event begin{Event::Kind::kTimed};
    Event end{Event::Kind::kTimed};
  };

  const ComputeQueue& computes_;
  int gpu_;
  Stream stream_;
  std::array<Span, kMaxCopies> spans_;
  uint64_t num_begun_ = 0;
  uint64_t num_finished_ = 0;
  uint64_t held_until_ = 0;  // the compute that the stream waits for already
};

}  // namespace spillway
