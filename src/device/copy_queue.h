// CopyQueue: carries out one stream's copies between host and device memory, and orders them after
// the computes that were begun before them. The seam between what must wait for what, which Mover
// and TransferStream keep, and how a device does it: at once on the host, as asynchronous copies of
// a CUDA stream, or as late as it can in tests.
// Thread rule: Mark by the engine's thread; the rest by the stream's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {

// `bytes` bytes `from` -> `to`, one of them in the device's memory.
struct DeviceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
  uint64_t after_compute = 0;  // a Mark; begins when those computes are done
  uint64_t ticket = 0;         // of the queue
};

// Begin and end of a copy, as NowSeconds counts.
struct CopyTimes {
  double begin_s = 0.0;
  double end_s = 0.0;
};

class CopyQueue {
 public:
  virtual ~CopyQueue() = default;

  // All computes begun so far, to order copies after them.
  virtual uint64_t Mark() const = 0;

  // True: WaitFor would return at once. Throws: Error kGpu.
  virtual bool Reached(uint64_t mark) const = 0;

  // Returns when these computes are done, and what the CPU did for them is in its memory. Throws:
  // Error kGpu.
  virtual void WaitFor(uint64_t mark) const = 0;

  // Begins the copy, or notes it; they are carried out in this order. Lifetime: both ends, until
  // Finish. Throws: Error kGpu.
  virtual void Begin(DeviceCopy& copy) = 0;

  // Returns when the copy is done. Called once for each copy, in the order of Begin.
  // Throws: Error kGpu.
  virtual CopyTimes Finish(const DeviceCopy& copy) = 0;
};

// Copies in Finish, on the calling thread. For devices whose memory is the host's and whose
// computes are done when Compute returns.
class HostCopyQueue final : public CopyQueue {
 public:
  uint64_t Mark() const override { return 0; }
  bool Reached(uint64_t) const override { return true; }
  void WaitFor(uint64_t) const override {}
  void Begin(DeviceCopy&) override {}
  CopyTimes Finish(const DeviceCopy& copy) override;
};

}  // namespace spillway
