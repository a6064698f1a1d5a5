#include "src/run/stall_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/io_thread.h"

namespace spillway {
namespace {

// Looks this often until the end.
constexpr int kLooks = 600;

}  // namespace

StallWatch::StallWatch(const StallLimits& limits, std::function<uint64_t()> pulse,
                       std::function<void(Stall)> stalled)
    : limits_(limits), pulse_(std::move(pulse)), stalled_(std::move(stalled)) {
  thread_ = StartIoThread([this] { Watch(); });
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

// Counts looks and not seconds: none are taken while the process is stopped or the machine sleeps.
void StallWatch::Watch() {
  const std::chrono::duration<double> interval(limits_.end_after_s / kLooks);
  const int tell_at =
      std::max(1, static_cast<int>(kLooks * limits_.tell_after_s / limits_.end_after_s));
  uint64_t before = pulse_();
  std::unique_lock lock(mutex_);
  for (int num_still = 0; !ended_.wait_for(lock, interval, [this] { return stopping_; });) {
    const uint64_t now = pulse_();
    num_still = now == std::exchange(before, now) && !paused_ ? num_still + 1 : 0;
    if (num_still == tell_at) stalled_(Stall::kTell);
    if (num_still == kLooks) stalled_(Stall::kEnd);
  }
}

}  // namespace spillway
