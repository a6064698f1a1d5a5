#include "src/gpu/cuda_copy_queue.h"

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/cuda/check.h"
#include "src/cuda/device.h"

namespace spillway {

bool CudaCopyQueue::Reached(uint64_t mark) const {
  UseGpu(gpu_);
  return computes_.Reached(mark);
}

void CudaCopyQueue::WaitFor(uint64_t mark) const {
  UseGpu(gpu_);
  computes_.Wait(mark);
}

void CudaCopyQueue::Begin(DeviceCopy& copy) {
  SPILLWAY_CHECK(num_begun_ - num_finished_ < kMaxCopies);
  UseGpu(gpu_);  // of this thread, which is the transfer stream's
  if (copy.after_compute > held_until_) {
    computes_.HoldUntil(copy.after_compute, stream_);
    held_until_ = copy.after_compute;
  }
  copy.ticket = num_begun_++;
  const Span& span = spans_[copy.ticket % kMaxCopies];
  stream_.Record(span.begin);
  CudaCheck(cudaMemcpyAsync(copy.to, copy.from, static_cast<std::size_t>(copy.bytes),
                            cudaMemcpyDefault, stream_.get()),
            "a copy between CPU and GPU");
  stream_.Record(span.end);
}

CopyTimes CudaCopyQueue::Finish(const DeviceCopy& copy) {
  const Span& span = spans_[copy.ticket % kMaxCopies];
  span.end.Wait();
  ++num_finished_;
  const double end_s = NowSeconds();  // later than it was by the time it takes to wake up
  return {end_s - span.end.SecondsSince(span.begin), end_s};
}

}  // namespace spillway
