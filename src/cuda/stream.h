// Stream and Event: the owners of CUDA's queue and of its marks. Nothing else holds raw handles,
// and nothing uses the default stream. Needs no toolkit to include.
// Thread rule: any thread; a stream's order is the order of the calls.
#pragma once

#include <memory>

struct CUstream_st;
struct CUevent_st;

namespace spillway {

// A mark in a stream. Fresh, or recorded; recorded again it stands for the new place.
class Event {
 public:
  // kOrder costs the GPU nothing; kTimed keeps the time at which it was reached.
  enum class Kind { kOrder, kTimed };

  // Throws: Error kGpu.
  explicit Event(Kind kind = Kind::kOrder);

  // Waits on the host, asleep, until the last record is reached; at once when there was none.
  // Throws: Error kGpu.
  void Wait() const;

  // True: the last record is reached, or there was none. Throws: Error kGpu.
  bool Reached() const;

  // Seconds between the records of two timed events. Requires: both are reached. Throws: Error
  // kGpu.
  double SecondsSince(const Event& earlier) const;

  CUevent_st* get() const { return handle_.get(); }

 private:
  struct Free {
    void operator()(CUevent_st* event) const noexcept;
  };
  std::unique_ptr<CUevent_st, Free> handle_;
};

class Stream {
 public:
  // Makes a stream of the current device, which never waits for the default stream. Throws: Error
  // kGpu.
  Stream();

  // Marks what was enqueued so far. Throws: Error kGpu.
  void Record(const Event& event);

  // Holds what is enqueued from now on until the event's last record is reached. Throws: Error
  // kGpu.
  void WaitFor(const Event& event);

  // Calls function(argument) on a thread of CUDA's, in the stream's order; what is enqueued behind
  // it waits for its return. It must not call CUDA. Lifetime: the argument, until then. Throws:
  // Error kGpu.
  void Call(void (*function)(void*), void* argument);

  CUstream_st* get() const { return handle_.get(); }

 private:
  struct Free {
    void operator()(CUstream_st* stream) const noexcept;
  };
  std::unique_ptr<CUstream_st, Free> handle_;
};

}  // namespace spillway
