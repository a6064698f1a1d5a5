// ComputeQueue: the stream in which a run computes, with a numbered mark after each compute, so
// that copies of other streams can begin after it.
// Thread rule: one thread enqueues and takes marks; Wait, Reached and HoldUntil by any.
#pragma once

#include <array>
#include <cstdint>

#include "src/cuda/stream.h"

namespace spillway {

class ComputeQueue {
 public:
  // Throws: Error kGpu.
  ComputeQueue() = default;

  Stream& stream() { return stream_; }

  // Ends a compute: all that was enqueued since the last call. Returns its number, from 1. Throws:
  // Error kGpu.
  uint64_t EndCompute();

  // The number of the last compute; 0 before the first.
  uint64_t num_computes() const { return num_computes_; }

  // Waits on the host until compute `number` is done, or a later one. Throws: Error kGpu.
  void Wait(uint64_t number) const;

  // True: Wait would return at once. Throws: Error kGpu.
  bool Reached(uint64_t number) const;

  // Holds what is enqueued in `other` from now on until compute `number` is done, or a later one
  // that is enqueued already. What a compute waits for in other streams is enqueued before it, and
  // the host has waited for its loads by then, so that there is no deadlock. Requires: number <=
  // num_computes(). Throws: Error kGpu.
  void HoldUntil(uint64_t number, Stream& other) const;

 private:
  // Marks are used again: an old number then stands for a later compute of the same stream, so that
  // a wait is longer than asked for, never shorter.
  static constexpr uint64_t kMarks = 16;  // more than the computes that the host may be ahead
  const Event& Mark(uint64_t number) const { return marks_[number % kMarks]; }

  Stream stream_;
  std::array<Event, kMarks> marks_;
  uint64_t num_computes_ = 0;
};

}  // namespace spillway
