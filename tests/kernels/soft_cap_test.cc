#include "kernels/rows/soft_cap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

class SoftCapTest : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, SoftCapTest, testing::ValuesIn(SupportedIsas()), IsaParamName);

TEST_P(SoftCapTest, AgreesWithTheOracle) {
  ThreadPool pool(2);
  for (const int64_t count : {0, 1, 15, 16, 17, 1000, 40000}) {
    for (const auto& [cap, scale] :
         {std::pair(0.5F, 1.0F), {30.0F, 1.0F}, {3.0F, 0.3F}, {0.0F, 0.0625F}}) {
      std::vector<float> ours = RandomFloats(count + 1, 1, 20.0F);
      ours.back() = kPoison;
      std::vector<float> expected = ours;
      SoftCap({ours.data(), count, cap, scale}, pool, GetParam());
      SoftCapRef({expected.data(), count, cap, scale});
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        ASSERT_NEAR(ours[i], expected[i], 4e-7F * std::abs(expected[i])) << count << " " << i;
      }
      EXPECT_TRUE(std::isnan(ours.back())) << "wrote behind the last";
    }
  }
}

// Small values keep their digits; large ones end at the cap; all keep their sign and their order.
TEST_P(SoftCapTest, FollowsTheFormula) {
  ThreadPool pool(1);
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {1e-20F, -1e-5F, 0.0F, 3.0F, -15.0F, 1e30F, -infinity, infinity};
  const std::vector<float> expected = {1e-20F,      -1e-5F, 0.0F,   2.9900398F,
                                       -13.863515F, 30.0F,  -30.0F, 30.0F};
  SoftCap({x.data(), std::ssize(x), 30.0F}, pool, GetParam());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_FLOAT_EQ(x[i], expected[i]) << i;
}

TEST_P(SoftCapTest, NeverFallsAsTheArgumentRises) {
  ThreadPool pool(1);
  std::vector<float> x;
  for (int step = -4000; step <= 4000; ++step) x.push_back(static_cast<float>(step) * 1e-3F);
  SoftCap({x.data(), std::ssize(x), 2.0F}, pool, GetParam());
  for (size_t i = 1; i < x.size(); ++i) ASSERT_GE(x[i], x[i - 1]) << i;
}

TEST_P(SoftCapTest, ABadElementSpoilsItselfOnly) {
  ThreadPool pool(1);
  std::vector<float> x(20, 1.0F);
  x[7] = kPoison;
  SoftCap({x.data(), std::ssize(x), 2.0F}, pool, GetParam());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(x[i]), i == 7) << i;
}

TEST_P(SoftCapTest, BitsDoNotDependOnTheNeighbours) {
  ThreadPool pool(2);
  std::vector<float> all = RandomFloats(1000, 3, 5.0F);
  const std::vector<float> given = all;
  SoftCap({all.data(), 1000, 3.0F}, pool, GetParam());
  for (size_t i = 0; i < 40; ++i) {
    float alone = given[i];
    SoftCap({&alone, 1, 3.0F}, pool, GetParam());
    EXPECT_EQ(Bits({&alone, 1}), Bits({&all[i], 1})) << i;
  }
}

}  // namespace
}  // namespace spillway::kernels
