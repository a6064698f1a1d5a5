#include "tests/run/late_device.h"

#include <cstring>
#include <utility>

#include "src/base/clock.h"

namespace spillway {
namespace {

class LateCopyQueue final : public CopyQueue {
 public:
  explicit LateCopyQueue(LateStreams& streams)
      : streams_(streams), stream_(streams.AddCopyStream()) {}

  uint64_t Mark() const override { return streams_.num_computes(); }
  bool Reached(uint64_t mark) const override { return streams_.HasComputed(mark); }
  void WaitFor(uint64_t mark) const override { streams_.FinishComputesUntil(mark); }
  void Begin(DeviceCopy& copy) override { copy.ticket = streams_.EnqueueCopy(stream_, copy); }
  CopyTimes Finish(const DeviceCopy& copy) override {
    streams_.FinishCopy(stream_, copy.ticket);
    const double now_s = NowSeconds();
    return {now_s, now_s};
  }

 private:
  LateStreams& streams_;
  std::size_t stream_;
};

// Enqueues what the CPU computes. The batch is copied: the engine packs the next one meanwhile.
class LateExecutor final : public Executor {
 public:
  LateExecutor(LateStreams& streams, std::unique_ptr<Executor> executor)
      : streams_(streams), executor_(std::move(executor)) {}

  void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) override {
    streams_.EnqueueCompute([this, at, batch, places] { executor_->Compute(at, batch, places); });
  }
  std::span<float> Logits() override {
    streams_.FinishComputes();
    return executor_->Logits();
  }

 private:
  LateStreams& streams_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace

std::size_t LateStreams::AddCopyStream() {
  const std::lock_guard lock(mutex_);
  copies_.emplace_back();
  return copies_.size() - 1;
}

uint64_t LateStreams::num_computes() const {
  const std::lock_guard lock(mutex_);
  return num_computes_;
}

void LateStreams::EnqueueCompute(std::function<void()> compute) {
  const std::lock_guard lock(mutex_);
  computes_.push_back(std::move(compute));
  ++num_computes_;
  RunReady();
}

uint64_t LateStreams::EnqueueCopy(std::size_t stream, const DeviceCopy& copy) {
  const std::lock_guard lock(mutex_);
  CopyStream& copies = copies_[stream];
  copies.waiting.push_back(copy);
  const uint64_t number = copies.num_done + copies.waiting.size();
  RunReady();
  return number;
}

void LateStreams::FinishComputes() {
  const std::lock_guard lock(mutex_);
  while (!computes_.empty()) RunCompute();
}

void LateStreams::FinishComputesUntil(uint64_t number) {
  const std::lock_guard lock(mutex_);
  while (marks_ == Marks::kObeyed && num_computed_ < number) RunCompute();
}

bool LateStreams::HasComputed(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return marks_ == Marks::kIgnored || num_computed_ >= number;
}

void LateStreams::FinishCopy(std::size_t stream, uint64_t number) {
  const std::lock_guard lock(mutex_);
  RunReady();
  CopyStream& copies = copies_[stream];
  while (copies.num_done < number) {
    while (!IsReady(copies)) RunCompute();
    RunCopy(copies);
  }
}

bool LateStreams::IsReady(const CopyStream& stream) const {
  return marks_ == Marks::kIgnored || stream.waiting.front().after_compute <= num_computed_;
}

void LateStreams::RunCompute() {
  computes_.front()();
  computes_.pop_front();
  ++num_computed_;
}

void LateStreams::RunCopy(CopyStream& stream) {
  const DeviceCopy& copy = stream.waiting.front();
  std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
  stream.waiting.pop_front();
  ++stream.num_done;
}

void LateStreams::RunReady() {
  while (pace_ != Pace::kLate) {
    if (pace_ == Pace::kRandom && random_() % 3 == 0) return;
    std::vector<std::function<void()>> ready;
    if (!computes_.empty()) ready.push_back([this] { RunCompute(); });
    for (CopyStream& stream : copies_) {
      if (!stream.waiting.empty() && IsReady(stream)) {
        ready.push_back([this, &stream] { RunCopy(stream); });
      }
    }
    if (ready.empty()) return;
    ready[random_() % ready.size()]();
  }
}

std::unique_ptr<CopyQueue> LateDevice::MakeCopyQueue() {
  return std::make_unique<LateCopyQueue>(streams_);
}

std::unique_ptr<Executor> LateDevice::MakeExecutor(const Plan& plan, const Arenas& arenas,
                                                   ThreadPool& pool) {
  return std::make_unique<LateExecutor>(streams_, host_.MakeExecutor(plan, arenas, pool));
}

}  // namespace spillway
