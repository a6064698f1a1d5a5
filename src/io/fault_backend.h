// The fault injection seam of the disk tier: a backend that passes attempts on to another one and
// spoils some of them. For tests; a normal run never makes one.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/io/disk_backend.h"

namespace spillway {

enum class FaultKind {
  kError,        // value: errno; nothing is moved
  kShort,        // value: at most so many bytes are moved
  kFlip,         // value: the bit of the block that comes back wrong (reads)
  kZero,         // the block comes back full of zeros (reads)
  kLost,         // a write is said to be done and is not: later reads give stale bytes
  kMisdirected,  // value: bytes between where it should go and where it goes
  kDelay,        // value: microseconds
};

struct Fault {
  DiskOp op = DiskOp::kRead;
  FaultKind kind = FaultKind::kError;
  int64_t value = 0;
  int64_t first = 0;   // attempts of that op are counted from 0
  int64_t period = 0;  // 0: only the first; n: every n-th from there on
};

struct FaultPlan {
  std::vector<Fault> faults;  // the first that fits an attempt acts
  bool shuffle = false;       // results come in a random order
  uint64_t seed = 0;
};

// "read:error=5@3,write:lost@0/2,shuffle=7": op, kind, value, first attempt, period; shuffle's
// seed. Throws: Error kFlag.
FaultPlan ParseFaultPlan(std::string_view text);

class FaultBackend : public DiskBackend, private DiskSink {
 public:
  // Throws: Error kSystemLimit.
  FaultBackend(std::unique_ptr<DiskBackend> inner, FaultPlan plan);
  ~FaultBackend() override;

  std::string_view name() const override { return inner_->name(); }
  std::string note() const override { return "faults are injected"; }
  int depth() const override { return inner_->depth(); }
  void Connect(DiskSink& sink) override;
  void Start(int32_t id, const DiskRequest& request) override;

 private:
  using Clock = std::chrono::steady_clock;

  // An attempt in flight, by the caller's id, and what is to be done with its result.
  struct Attempt {
    DiskRequest request;
    const Fault* fault = nullptr;
  };
  struct Held {
    int32_t id = 0;
    int64_t result = 0;
    Clock::time_point due;
  };

  void Completed(int32_t id, int64_t result) noexcept override;
  const Fault* NextFault(DiskOp op);
  void Remember(int32_t id, const Attempt& attempt);
  void Hold(int32_t id, int64_t result, Clock::duration delay);
  void Deliver();
  std::size_t ChooseHeld() const;

  FaultPlan plan_;
  DiskSink* sink_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<int64_t, 2> num_attempts_{};  // guarded by mutex_, as all below but inner_
  std::vector<Attempt> attempts_;
  std::vector<Held> held_;
  mutable std::mt19937_64 random_;
  bool stopping_ = false;
  std::unique_ptr<DiskBackend> inner_;
  std::thread deliverer_;
};

}  // namespace spillway
