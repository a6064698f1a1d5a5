#include "src/cuda/compute_queue.h"

namespace spillway {

uint64_t ComputeQueue::EndCompute() {
  stream_.Record(Mark(num_computes_ + 1));
  return ++num_computes_;
}

void ComputeQueue::Wait(uint64_t number) const {
  if (number > 0) Mark(number).Wait();
}

bool ComputeQueue::Reached(uint64_t number) const { return number == 0 || Mark(number).Reached(); }

void ComputeQueue::HoldUntil(uint64_t number, Stream& other) const {
  if (number > 0) other.WaitFor(Mark(number));
}

}  // namespace spillway
