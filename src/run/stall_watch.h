// StallWatch: warns when a run makes no progress, and ends the process when that lasts: a disk that
// never answers, a kernel that never ends (docs/reliability.md, "The run"). Slow is not stalled.
// Thread rule: one thread; the pulse is felt on another.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "src/run/job.h"

namespace spillway {

struct StallLimits {
  double tell_after_s = 60.0;
  double end_after_s = 600.0;
};

class StallWatch {
 public:
  // `pulse`: a number that changes while anything gets on; any thread. `stalled`: says so, on a
  // thread of the watch's, first after tell_after_s. When end_after_s have passed it is told so and
  // must not return: threads that hang cannot be joined. Both count the time in which this process
  // ran: one that was stopped for hours is not stalled. Throws: Error kSystemLimit.
  enum class Stall { kTell, kEnd };
  StallWatch(const StallLimits& limits, std::function<uint64_t()> pulse,
             std::function<void(Stall)> stalled);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Time that does not count: others may make a run wait as long as they like, as by a pipe that
  // nobody empties.
  class Pause {
   public:
    explicit Pause(StallWatch& watch) : watch_(watch) { watch_.paused_ = true; }
    ~Pause() { watch_.paused_ = false; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    StallWatch& watch_;
  };

 private:
  void Watch();

  const StallLimits limits_;
  const std::function<uint64_t()> pulse_;
  const std::function<void(Stall)> stalled_;
  std::atomic<bool> paused_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

// A job whose own time does not count. Lifetime: both outlive it.
class UnwatchedJob final : public Job {
 public:
  UnwatchedJob(Job& job, StallWatch& watch) : job_(job), watch_(watch) {}

  std::optional<Request> Next() override {
    const StallWatch::Pause pause(watch_);
    return job_.Next();
  }
  void Finish(const Request& request, const Completion& completion) override {
    const StallWatch::Pause pause(watch_);
    job_.Finish(request, completion);
  }
  void Fail(const Request& request, const std::string& code, const std::string& message) override {
    const StallWatch::Pause pause(watch_);
    job_.Fail(request, code, message);
  }

 private:
  Job& job_;
  StallWatch& watch_;
};

}  // namespace spillway
