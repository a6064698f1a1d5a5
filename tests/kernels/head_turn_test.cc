#include "kernels/attention/head_turn.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/kernels/kernel_test_util.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kDims[] = {1, 2, 8, 16, 64, 128, 256};
constexpr int64_t kRows = 19;
constexpr int64_t kHeads = 3;
constexpr int64_t kPadding = 5;  // between rows

std::vector<float> Turned(std::vector<float> x, int64_t dim, int num_threads = 1) {
  ThreadPool pool(num_threads);
  TurnHeads({x.data(), kHeads * dim + kPadding, kRows, kHeads, dim}, pool);
  return x;
}

std::vector<float> RandomRows(int64_t dim) {
  return RandomFloats(kRows * (kHeads * dim + kPadding), static_cast<uint32_t>(dim));
}

// Element (i, j) of the transform is 1 / sqrt(dim), negative where i & j has an odd number of ones.
TEST(HeadTurnTest, IsTheHadamardTransform) {
  for (const int64_t dim : kDims) {
    SCOPED_TRACE(CaseOf("head_dim", dim));
    const std::vector<float> x = RandomRows(dim);
    const std::vector<float> turned = Turned(x, dim);
    const int64_t stride = kHeads * dim + kPadding;
    for (int64_t i = 0; i < std::ssize(x); ++i) {
      const int64_t column = i % stride;
      const auto at = static_cast<size_t>(i);
      if (column >= kHeads * dim) {
        ASSERT_EQ(turned[at], x[at]) << "between rows";
        continue;
      }
      double sum = 0.0;
      for (int64_t j = 0; j < dim; ++j) {
        const bool negative = std::popcount(static_cast<uint64_t>(column % dim & j)) % 2 == 1;
        const double other = x[static_cast<size_t>(i - column % dim + j)];
        sum += negative ? -other : other;
      }
      ASSERT_NEAR(turned[at], sum / std::sqrt(static_cast<double>(dim)), 1e-5) << "element " << i;
    }
  }
}

TEST(HeadTurnTest, TwiceIsNothing) {
  for (const int64_t dim : kDims) {
    const std::vector<float> x = RandomRows(dim);
    const std::vector<float> back = Turned(Turned(x, dim), dim);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(back[i], x[i], 1e-5) << "head_dim " << dim;
  }
}

TEST(HeadTurnTest, BitsDoNotDependOnThreads) {
  for (const int64_t dim : kDims)
    EXPECT_EQ(Turned(RandomRows(dim), dim, 1), Turned(RandomRows(dim), dim, 3)) << dim;
}

}  // namespace
}  // namespace spillway::kernels
