// The ring of events: what a full one does, and that threads do not lose each other's events.
#include "src/report/trace_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace spillway {
namespace {

TraceEvent Numbered(int64_t thread, int64_t number) {
  return RowSample{static_cast<double>(thread), number};
}

int64_t NumberOf(const TraceEvent& event) { return std::get<RowSample>(event).rows_running; }

TEST(TraceRingTest, AFullRingKeepsTheOldestAndCountsTheRest) {
  TraceRing ring(4);
  for (int64_t number = 0; number < 7; ++number) ring.Push(Numbered(0, number));
  EXPECT_EQ(ring.num_dropped(), 3);
  for (int64_t number = 0; number < 4; ++number) EXPECT_EQ(NumberOf(ring.Pop().value()), number);
  EXPECT_FALSE(ring.Pop().has_value());
}

TEST(TraceRingTest, GoesOnAfterItWasFull) {
  TraceRing ring(3);
  for (int64_t number = 0; number < 4; ++number) ring.Push(Numbered(0, number));
  for (int64_t number = 10; number < 30; ++number) {
    ring.Pop();
    ring.Push(Numbered(0, number));
  }
  EXPECT_EQ(ring.num_dropped(), 1);
  for (int64_t number = 27; number < 30; ++number) EXPECT_EQ(NumberOf(ring.Pop().value()), number);
  EXPECT_FALSE(ring.Pop().has_value());
}

TEST(TraceRingTest, EveryEventOfEveryThreadArrivesOnceOrIsCounted) {
  constexpr int64_t kThreads = 4;
  constexpr int64_t kEvents = 20'000;
  TraceRing ring(64);
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&ring, thread] {
      for (int64_t number = 0; number < kEvents; ++number) ring.Push(Numbered(thread, number));
    });
  }
  std::array<int64_t, kThreads> last = {-1, -1, -1, -1};
  int64_t num_popped = 0;
  while (num_popped + ring.num_dropped() < kThreads * kEvents) {
    const std::optional<TraceEvent> event = ring.Pop();
    if (!event) continue;
    ++num_popped;
    const auto thread = static_cast<std::size_t>(std::get<RowSample>(*event).at_s);
    ASSERT_GT(NumberOf(*event), last[thread]);
    last[thread] = NumberOf(*event);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_popped + ring.num_dropped(), kThreads * kEvents);
  EXPECT_FALSE(ring.Pop().has_value());
}

}  // namespace
}  // namespace spillway
