#include "src/verbs/row_quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace spillway {
namespace {

StepLogprobs Step(const std::vector<std::pair<TokenId, double>>& probabilities) {
  StepLogprobs step;
  for (const auto& [token, probability] : probabilities)
    step.top.push_back({token, static_cast<float>(std::log(probability))});
  return step;
}

double Term(double full, double own) { return full * std::log(full / own); }

TEST(StepDivergence, IsThatOfWholeDistributions) {
  EXPECT_NEAR(StepDivergence(Step({{3, 0.75}, {5, 0.25}}), Step({{5, 0.5}, {3, 0.5}})),
              Term(0.75, 0.5) + Term(0.25, 0.5), 1e-6);
  EXPECT_NEAR(StepDivergence(Step({{3, 0.75}, {5, 0.25}}), Step({{3, 0.75}, {5, 0.25}})), 0.0,
              1e-6);
}

TEST(StepDivergence, TakesTokensOfNeitherListAsOne) {
  EXPECT_NEAR(StepDivergence(Step({{3, 0.75}, {5, 0.2}}), Step({{3, 0.5}, {5, 0.1}})),
              Term(0.75, 0.5) + Term(0.2, 0.1) + Term(0.05, 0.4), 1e-6);
}

// The list of the other ends at 0.02, so that what it lacks has no more.
TEST(StepDivergence, BoundsTokensThatTheOtherDoesNotList) {
  EXPECT_NEAR(StepDivergence(Step({{3, 0.9}, {5, 0.1}}), Step({{4, 0.98}, {6, 0.02}})),
              Term(0.9, 0.02) + Term(0.1, 0.02), 1e-6);
}

// 7 would have a third of the 0.3 that 3 leaves: less than the list's last one allows.
TEST(StepDivergence, SharesOutWhatTheBoundLeaves) {
  EXPECT_NEAR(StepDivergence(Step({{3, 0.7}, {7, 0.1}}), Step({{3, 0.5}, {9, 0.3}})),
              Term(0.7, 0.5) + Term(0.3, 0.5), 1e-6);
}

TEST(StepDivergence, IsNeverInfinite) {
  const StepLogprobs sure = {0.0F, {{4, 0.0F}, {5, -INFINITY}}};
  const double divergence = StepDivergence(Step({{3, 1.0}}), sure);
  EXPECT_GT(divergence, 10.0);
  EXPECT_LT(divergence, 15.0);
}

TEST(QualityReceipt, IsNoneWithoutSteps) {
  EXPECT_FALSE(ReceiptOf({}).has_value());
  EXPECT_FALSE(ReceiptOf({RowQuality{}, RowQuality{}}).has_value());
}

TEST(QualityReceipt, HasNoErrorOfOneRow) {
  RowQuality row =
      CompareSteps({Step({{1, 0.9}}), Step({{2, 0.9}})}, {Step({{1, 0.9}}), Step({{3, 0.9}})});
  row.lengths = {2, 5};
  const QualityReceipt receipt = ReceiptOf({RowQuality{}, row}).value();
  EXPECT_EQ(receipt.num_rows, 1);
  EXPECT_EQ(receipt.num_tokens, 2);
  EXPECT_DOUBLE_EQ(receipt.agreement.mean, 0.5);
  EXPECT_FALSE(receipt.agreement.error.has_value());
  ASSERT_TRUE(receipt.lengths.has_value());
  EXPECT_DOUBLE_EQ(receipt.lengths->difference.mean, 3.0);
  EXPECT_FALSE(receipt.lengths->difference.error.has_value());
}

// Rows weigh by their steps, and the error is that of a ratio of sums: of rows of 1 and 3 steps, of
// which 1 and 2 agree.
TEST(QualityReceipt, WeighsRowsByTheirSteps) {
  const StepLogprobs one = Step({{1, 0.9}});
  const StepLogprobs two = Step({{2, 0.9}});
  const QualityReceipt receipt =
      ReceiptOf({CompareSteps({one}, {one}), CompareSteps({one, one, one}, {one, one, two})})
          .value();
  EXPECT_DOUBLE_EQ(receipt.agreement.mean, 0.75);
  EXPECT_NEAR(receipt.agreement.error.value(), std::sqrt(2.0 * 2 * 0.25 * 0.25) / 4.0, 1e-12);
  EXPECT_FALSE(receipt.lengths.has_value());
}

TEST(QualityReceipt, PairsLengthsByRow) {
  const auto lengths =
      ReceiptOf({{1, 1, 0.0, LengthPair{10, 12}}, {1, 1, 0.0, LengthPair{20, 26}}, {1, 1, 0.0, {}}})
          ->lengths.value();
  EXPECT_EQ(lengths.num_rows, 2);
  EXPECT_DOUBLE_EQ(lengths.full, 15.0);
  EXPECT_DOUBLE_EQ(lengths.own, 19.0);
  EXPECT_DOUBLE_EQ(lengths.difference.mean, 4.0);
  EXPECT_NEAR(lengths.difference.error.value(), 2.0, 1e-12);
}

}  // namespace
}  // namespace spillway
