#include "src/run/stall_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/run/list_job.h"

namespace spillway {
namespace {

using Stall = StallWatch::Stall;

// Told after a tenth of it, and then at its end.
constexpr StallLimits kShort = {0.03, 0.3};

void SleepSeconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

class StallWatchTest : public ::testing::Test {
 protected:
  std::function<uint64_t()> Pulse() {
    return [this] { return pulse_.load(); };
  }
  std::function<void(Stall)> Count() {
    return [this](Stall stall) { ++(stall == Stall::kTell ? num_told_ : num_ended_); };
  }
  // Waits until `reached`, or so long that only a defect can be the reason.
  template <typename F>
  bool WaitFor(F reached) {
    for (int i = 0; i < 3000 && !reached(); ++i) SleepSeconds(0.01);
    return reached();
  }

  std::atomic<uint64_t> pulse_ = 7;
  std::atomic<int> num_told_ = 0;
  std::atomic<int> num_ended_ = 0;
};

TEST_F(StallWatchTest, TellsOnceAndThenEnds) {
  const StallWatch watch(kShort, Pulse(), Count());
  ASSERT_TRUE(WaitFor([&] { return num_ended_ == 1; }));
  EXPECT_EQ(num_told_, 1);
}

TEST_F(StallWatchTest, TellsAgainOfAnotherStall) {
  const StallWatch watch({0.1, 60.0}, Pulse(), Count());
  ASSERT_TRUE(WaitFor([&] { return num_told_ == 1; }));
  ++pulse_;
  ASSERT_TRUE(WaitFor([&] { return num_told_ == 2; }));
  EXPECT_EQ(num_ended_, 0);
}

TEST_F(StallWatchTest, SaysNothingWhileAnythingGetsOn) {
  const StallWatch watch(
      kShort, [this] { return ++pulse_; }, Count());
  SleepSeconds(0.6);
  EXPECT_EQ(num_told_, 0);
}

TEST_F(StallWatchTest, PausesDoNotCount) {
  StallWatch watch({0.1, 1.0}, Pulse(), Count());
  {
    const StallWatch::Pause pause(watch);
    SleepSeconds(1.5);
    EXPECT_EQ(num_ended_, 0);
  }
  EXPECT_TRUE(WaitFor([&] { return num_ended_ == 1; }));
}

// Waits in every call.
class SlowJob final : public ListJob {
 public:
  explicit SlowJob(std::function<void()> wait) : ListJob({}), wait_(std::move(wait)) {}
  std::optional<Request> Next() override {
    wait_();
    return ListJob::Next();
  }
  void Finish(const Request& request, const Completion& completion) override {
    wait_();
    ListJob::Finish(request, completion);
  }
  void Fail(const Request& request, const std::string& code, const std::string& message) override {
    wait_();
    ListJob::Fail(request, code, message);
  }

 private:
  std::function<void()> wait_;
};

TEST_F(StallWatchTest, AJobMayTakeItsTime) {
  StallWatch watch({0.1, 1.0}, Pulse(), Count());
  SlowJob job([&] { SleepSeconds(1.2); });
  UnwatchedJob unwatched(job, watch);
  EXPECT_FALSE(unwatched.Next().has_value());
  unwatched.Finish({}, {});
  unwatched.Fail({}, "E-NONFINITE", "text");
  EXPECT_EQ(num_ended_, 0);
  EXPECT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.failed.size(), 1U);
}

}  // namespace
}  // namespace spillway
