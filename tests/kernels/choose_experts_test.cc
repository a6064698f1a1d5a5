#include "kernels/rows/choose_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/rows/expert_rows.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

struct Choices {
  ChooseExpertsArgs args;
  std::vector<float> scores;
  std::vector<float> choice;

  Choices(int64_t rows, int64_t num_experts, int64_t top_k) {
    args.rows = rows;
    args.num_experts = num_experts;
    args.top_k = top_k;
    args.scores_stride = num_experts + 3;
    scores = RandomFloats(rows * args.scores_stride, 7, 3.0F);
  }
  ChooseExpertsArgs Ready() {
    args.choice_stride = 2 * args.slots() + 1;
    choice.assign(static_cast<size_t>(args.rows * args.choice_stride), kPoison);
    args.scores = scores.data();
    args.choice = choice.data();
    return args;
  }
  std::vector<float> Chosen(int num_threads) {
    ThreadPool pool(num_threads);
    ChooseExperts(Ready(), pool);
    return choice;
  }
  std::vector<float> Expected() {
    ChooseExpertsRef(Ready());
    return choice;
  }
};

TEST(ChooseExpertsTest, AgreesWithTheOracle) {
  for (const int64_t num_experts : {1, 2, 8, 60, 128}) {
    for (const int64_t top_k : {1, 2, 8}) {
      if (top_k > num_experts) continue;
      for (const ChoiceWeights weights : {ChoiceWeights::kOfAll, ChoiceWeights::kOfChosen}) {
        for (const bool shared : {false, true}) {
          Choices of(37, num_experts, top_k);
          of.args.weights = weights;
          of.args.shared = shared;
          const std::vector<float> ours = of.Chosen(2);
          const std::vector<float> expected = of.Expected();
          for (size_t i = 0; i < ours.size(); ++i) {
            if (std::isnan(expected[i])) {
              ASSERT_TRUE(std::isnan(ours[i])) << "wrote behind a row at " << i;
            } else {
              ASSERT_NEAR(ours[i], expected[i], 2e-6F * std::abs(expected[i])) << i;
            }
          }
        }
      }
    }
  }
}

TEST(ChooseExpertsTest, EqualScoresGoToTheLowerNumbers) {
  Choices of(1, 6, 4);
  of.scores = {1.0F, 3.0F, 1.0F, 3.0F, 1.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  const std::vector<float> chosen = of.Chosen(1);
  EXPECT_EQ(std::vector<float>(chosen.begin(), chosen.begin() + 4),
            (std::vector<float>{1.0F, 3.0F, 0.0F, 2.0F}));
  EXPECT_EQ(chosen[4], chosen[5]);
  EXPECT_EQ(chosen[6], chosen[7]);
}

TEST(ChooseExpertsTest, WeightsOfTheChosenAddUpToOne) {
  Choices of(20, 16, 3);
  const std::vector<float> chosen = of.Chosen(2);
  for (size_t row = 0; row < 20; ++row) {
    const float* weights = chosen.data() + row * 7 + 3;
    EXPECT_NEAR(weights[0] + weights[1] + weights[2], 1.0F, 1e-6F) << row;
    EXPECT_GE(weights[0], weights[1]);
    EXPECT_GE(weights[1], weights[2]);
  }
}

TEST(ChooseExpertsTest, LargeScoresDoNotOverflow) {
  Choices of(1, 2, 2);
  of.scores = {5e4F, -5e4F, 0.0F, 0.0F, 0.0F};
  const std::vector<float> chosen = of.Chosen(1);
  EXPECT_EQ(chosen[2], 1.0F);
  EXPECT_EQ(chosen[3], 0.0F);
}

// Numbers that are no experts would send rows outside of all buffers.
TEST(ChooseExpertsTest, ScoresThatAreNotFiniteStillChooseDistinctExperts) {
  Choices of(1, 4, 3);
  of.scores = {kPoison, INFINITY, kPoison, -INFINITY, 0.0F, 0.0F, 0.0F};
  const std::vector<float> chosen = of.Chosen(1);
  std::vector<float> numbers(chosen.begin(), chosen.begin() + 3);
  std::ranges::sort(numbers);
  EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end());
  for (const float number : numbers) EXPECT_TRUE(number >= 0.0F && number < 4.0F) << number;
}

TEST(ChooseExpertsTest, ThreadsChangeNoBit) {
  Choices of(300, 128, 8);
  const std::vector<float> one = of.Chosen(1);
  const std::vector<float> two = of.Chosen(2);
  EXPECT_EQ(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)), 0);
}

TEST(ExpertRowsTest, RowsGoAndComeBackWeighted) {
  ThreadPool pool(2);
  constexpr int64_t kCols = 5;
  std::vector<float> states = RandomFloats(10 * 16, 1, 1.0F);
  const std::vector<float> before = states;
  const std::vector<size_t> tokens = {7, 0, 3};
  const std::vector<float> weights = {0.5F, 2.0F, -1.0F};
  std::vector<float*> rows;
  for (const size_t token : tokens) rows.push_back(states.data() + token * 16);
  std::vector<float> taken(3 * 6, kPoison);
  TakeExpertRows({rows, 8, kCols, taken.data(), 6}, pool);
  AddExpertRows({rows, 2, weights, taken.data(), 6, kCols}, pool);
  for (size_t row = 0; row < 10; ++row) {
    const auto at = std::ranges::find(tokens, row) - tokens.begin();
    for (size_t col = 0; col < 16; ++col) {
      const bool goes = at < 3 && col >= 2 && col < 2 + kCols;
      const float more =
          goes ? weights[static_cast<size_t>(at)] * before[row * 16 + col + 6] : 0.0F;
      EXPECT_EQ(states[row * 16 + col], before[row * 16 + col] + more) << row << " " << col;
    }
  }
  EXPECT_TRUE(std::isnan(taken[5]));
}

}  // namespace
}  // namespace spillway::kernels
