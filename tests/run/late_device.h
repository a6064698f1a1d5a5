// LateDevice: a device that computes and copies as late, as early, or in any order that its marks
// allow, with real arithmetic and real bytes. It stands in for a GPU, whose streams run when they
// like: a copy or a compute finds in memory what it would find on a GPU that chose this order. A
// run whose tokens are right has therefore ordered all that they depend on. Thread rule: that of
// Device; it locks.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "src/compute/host_device.h"
#include "src/device/device.h"

namespace spillway {

enum class Pace {
  kLate,    // nothing is done before someone waits for it
  kEarly,   // everything is done as soon as its marks allow it
  kRandom,  // anything that may be done is done at any time
};

// kObeyed: copies wait for the computes of their mark, as they must.
enum class Marks { kObeyed, kIgnored };

// All streams of the device: what was enqueued and is not done yet.
class LateStreams {
 public:
  LateStreams(Pace pace, uint32_t seed, Marks marks) : pace_(pace), marks_(marks), random_(seed) {}

  std::size_t AddCopyStream();
  uint64_t num_computes() const;
  void EnqueueCompute(std::function<void()> compute);
  uint64_t EnqueueCopy(std::size_t stream, const DeviceCopy& copy);

  // Runs what is enqueued until this is done, and what it needs.
  void FinishComputes();
  void FinishComputesUntil(uint64_t number);
  bool HasComputed(uint64_t number) const;
  void FinishCopy(std::size_t stream, uint64_t number);

 private:
  struct CopyStream {
    std::deque<DeviceCopy> waiting;
    uint64_t num_done = 0;
  };
  bool IsReady(const CopyStream& stream) const;
  void RunCompute();
  void RunCopy(CopyStream& stream);
  void RunReady();  // as the pace has it

  mutable std::mutex mutex_;
  Pace pace_;
  Marks marks_;
  std::mt19937 random_;
  std::deque<std::function<void()>> computes_;
  uint64_t num_computes_ = 0;
  uint64_t num_computed_ = 0;
  std::vector<CopyStream> copies_;
};

class LateDevice final : public Device {
 public:
  LateDevice(Pace pace, uint32_t seed, Marks marks = Marks::kObeyed)
      : streams_(pace, seed, marks) {}

  KernelNeeds needs() const override { return host_.needs(); }
  DeviceMemory memory() const override { return {}; }
  int64_t TakenBytes() const override { return 0; }
  std::string name() const override { return {}; }
  std::unique_ptr<Arena> MakeArena(Tier tier, int64_t bytes) override {
    return host_.MakeArena(tier, bytes);
  }
  std::unique_ptr<CopyQueue> MakeCopyQueue() override;
  std::unique_ptr<Executor> MakeExecutor(const Plan& plan, const Arenas& arenas,
                                         ThreadPool& pool) override;
  std::unique_ptr<GpuProbe> MakeProbe() const override { return nullptr; }
  bool IsHostMemory() const override { return true; }
  void CopyIn(std::byte* to, std::span<const std::byte> from) override { host_.CopyIn(to, from); }

 private:
  HostDevice host_;
  LateStreams streams_;
};

}  // namespace spillway
