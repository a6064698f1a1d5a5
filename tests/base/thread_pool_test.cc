#include "src/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "spillway/error.h"
#include "src/base/cpu_topology.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, EachTaskRunsOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.num_threads(), GetParam());
  for (const int64_t num_tasks : {0, 1, 2, 7, 1000}) {
    std::vector<int> counts(static_cast<size_t>(num_tasks));
    auto task = [&](int64_t index, int worker) {
      ASSERT_GE(worker, 0);
      ASSERT_LT(worker, GetParam());
      ++counts[static_cast<size_t>(index)];
    };
    pool.Run(num_tasks, task);
    EXPECT_EQ(counts, std::vector<int>(static_cast<size_t>(num_tasks), 1));
  }
}

// Data fetched ahead for the wrong task would be read twice from memory.
TEST_P(ThreadPoolTest, AWorkerAloneGoesOnWithTheNextTask) {
  ThreadPool pool(GetParam());
  for (const int64_t num_tasks : {1, 2, 7, 100}) {
    SCOPED_TRACE(CaseOf("tasks", num_tasks));
    std::vector<int64_t> next(static_cast<size_t>(num_tasks));
    auto task = [&](int64_t i, int /*worker*/) { next[static_cast<size_t>(i)] = pool.NextTask(i); };
    pool.Run(num_tasks, task);
    EXPECT_EQ(next.back(), -1);
    EXPECT_EQ(std::count(next.begin(), next.end(), -1), std::min<int64_t>(num_tasks, GetParam()));
    for (int64_t i = 0; i < num_tasks; ++i) {
      const int64_t of_i = next[static_cast<size_t>(i)];
      EXPECT_TRUE(of_i == -1 || of_i == i + 1) << i << " of " << num_tasks;
    }
  }
}

TEST_P(ThreadPoolTest, ManyShortRunsSeeEachOthersResults) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(64, 0);
  auto task = [&](int64_t index, int /*worker*/) {
    values[static_cast<size_t>((index * 7) % 64)] += index;
  };
  for (int run = 0; run < 2000; ++run) pool.Run(64, task);
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 2000 * 63 * 32);
}

TEST_P(ThreadPoolTest, WakesAfterSleep) {
  ThreadPool pool(GetParam());
  std::atomic<int> count{0};
  auto task = [&](int64_t /*index*/, int /*worker*/) { ++count; };
  for (int run = 0; run < 5; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // far longer than a worker spins
    pool.Run(20, task);
  }
  EXPECT_EQ(count, 100);
}

TEST_P(ThreadPoolTest, AfterAFailureNothingElseBegins) {
  ThreadPool pool(GetParam());
  std::atomic<int> count{0};
  std::atomic<int> inside{0};
  auto task = [&](int64_t index, int /*worker*/) {
    ++inside;
    ++count;
    std::this_thread::sleep_for(std::chrono::milliseconds(index == 3 ? 0 : 2));
    --inside;
    if (index == 3) throw std::runtime_error("task failed");
  };
  EXPECT_THROW(pool.Run(1000, task), std::runtime_error);
  EXPECT_EQ(inside, 0);
  EXPECT_GE(count, 4);
  EXPECT_LT(count, 100);
  count = 0;
  auto good = [&](int64_t /*index*/, int /*worker*/) { ++count; };
  pool.Run(10, good);
  EXPECT_EQ(count, 10);
}

// Runs in a process of its own, which alone has little address space.
TEST(ThreadPoolDeathTest, AThreadThatTheSystemRefusesIsALimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs address space itself";
#endif
  const auto start = [] {
    const rlimit limit{256 << 20, 256 << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      ThreadPool pool(300);  // 8 MiB of stack each
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(ExitStatus(error.code()));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(33),
              "cannot start 300 threads: .*ulimit -u.*ulimit -v");
}

TEST(ThreadPool, WorkerNumbersAreDistinct) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> clash{false};
  auto task = [&](int64_t /*index*/, int worker) {
    if (inside[static_cast<size_t>(worker)]++ != 0) clash = true;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    --inside[static_cast<size_t>(worker)];
  };
  pool.Run(200, task);
  EXPECT_FALSE(clash);
}

TEST(ThreadPool, ATickChangesThePulse) {
  ThreadPool pool(2);
  const uint64_t before = pool.Pulse();
  EXPECT_EQ(pool.Pulse(), before);
  pool.Tick();
  EXPECT_NE(pool.Pulse(), before);
}

TEST(CpuTopology, CoresAreDistinctAndCounted) {
  const std::vector<int> cores = PhysicalCores();
  EXPECT_GE(cores.size(), 1U);
  EXPECT_EQ(std::set<int>(cores.begin(), cores.end()).size(), cores.size());
  EXPECT_EQ(NumPhysicalCores(), static_cast<int>(cores.size()));
}

}  // namespace
}  // namespace spillway
