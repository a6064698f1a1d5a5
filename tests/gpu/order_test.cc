// Streams, events and copies of a GPU: a copy begins after the compute that it must wait for.
#include <vector>

#include "kernels/rows/norm.h"
#include "src/cuda/compute_queue.h"
#include "src/gpu/cuda_copy_queue.h"
#include "tests/gpu/gpu_test_util.h"

namespace spillway {
namespace {

using OrderTest = GpuTest;

TEST_F(OrderTest, ACopyTakesAwayWhatTheComputesBeforeItLeft) {
#ifdef SPILLWAY_SOFT_GPU  // its streams are late in any case
  constexpr int64_t kCols = 1 << 12;
#else
  constexpr int64_t kCols = 1 << 20;
#endif
  constexpr int64_t kRows = 16;
  constexpr int64_t kBytes = kRows * kCols * 4;
  ComputeQueue computes;
  CudaCopyQueue copies(computes, 0);
  const DeviceArena device(kBytes);
  const PinnedArena host(kBytes);
  auto* values = host.As<float>({0, kBytes});
  for (int64_t at = 0; at < kRows * kCols; ++at) values[at] = static_cast<float>(at % 2);
  auto* there = device.As<float>({0, kBytes});
  DeviceCopy in = {reinterpret_cast<std::byte*>(there), reinterpret_cast<std::byte*>(values),
                   kBytes, copies.Mark(), 0};
  copies.Begin(in);
  copies.Finish(in);
  // Zeros and ones become -1 and 1; the compute takes far longer than it takes to begin the copy.
  for (int round = 0; round < 50; ++round) {
    kernels::NormAsync({there, kCols, there, kCols, kRows, kCols, nullptr, nullptr, 0.0F},
                       computes.stream());
  }
  computes.EndCompute();
  DeviceCopy out = {reinterpret_cast<std::byte*>(values), reinterpret_cast<std::byte*>(there),
                    kBytes, copies.Mark(), 0};
  copies.Begin(out);
  const CopyTimes times = copies.Finish(out);
  EXPECT_GT(times.end_s, times.begin_s);
  for (int64_t at = 0; at < kRows * kCols; ++at) {
    ASSERT_NEAR(values[at], at % 2 == 0 ? -1.0F : 1.0F, 1e-3F) << at;
  }
}

TEST_F(OrderTest, MoreComputesThanMarksAreWaitedForInOrder) {
  ComputeQueue computes;
  for (uint64_t number = 1; number <= 100; ++number) {
    EXPECT_EQ(computes.EndCompute(), number);
    computes.Wait(number);
  }
}

TEST_F(OrderTest, MemoryThatIsNotThereIsRefusedWithNumbers) {
  try {
    const DeviceArena arena(int64_t{1} << 50);
    FAIL() << "a pebibyte of GPU memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kGpuMemory);
    EXPECT_NE(std::string(error.what()).find("free"), std::string::npos) << error.what();
  }
  const DeviceArena arena(1 << 20);  // it was no sticky error
}

}  // namespace
}  // namespace spillway
