#include "src/report/eta.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

// Four blocks of 10 rows, 8 tokens each.
ExpectedWork Work(std::optional<double> predicted_s) { return {40, 320, 10, predicted_s}; }

TEST(Eta, TheModelSaysItUntilABlockIsDone) {
  Eta eta(Work(100.0));
  const WorkDone prefilled = {0, 10, 10, 10};
  eta.See(prefilled, 20.0);
  EXPECT_DOUBLE_EQ(*eta.LeftSeconds(prefilled, 20.0), 80.0);
  const WorkDone nine = {9, 1, 79, 79};
  eta.See(nine, 29.0);
  EXPECT_DOUBLE_EQ(*eta.LeftSeconds(nine, 29.0), 71.0);
}

TEST(Eta, MeasuredBlocksReplaceTheModel) {
  Eta eta(Work(100.0));
  const WorkDone block = {10, 0, 80, 80};
  eta.See(block, 50.0);
  EXPECT_DOUBLE_EQ(*eta.LeftSeconds(block, 50.0), 150.0);
  // The next block's prefill settles next to nothing; what is left shrinks with the clock.
  const WorkDone prefilled = {10, 10, 90, 90};
  eta.See(prefilled, 60.0);
  EXPECT_DOUBLE_EQ(*eta.LeftSeconds(prefilled, 60.0), 140.0);
  const WorkDone second = {21, 9, 168, 168};
  eta.See(second, 84.0);
  EXPECT_DOUBLE_EQ(*eta.LeftSeconds(second, 84.0), 76.0);
}

TEST(Eta, WithoutAModelTheRateSoFar) {
  Eta eta(Work(std::nullopt));
  EXPECT_FALSE(eta.LeftSeconds({0, 10, 0, 0}, 5.0));
  EXPECT_DOUBLE_EQ(*eta.LeftSeconds({0, 10, 40, 40}, 5.0), 35.0);
}

TEST(Eta, AModelThatHopedForTooMuchIsDropped) {
  Eta eta(Work(10.0));
  EXPECT_DOUBLE_EQ(*eta.LeftSeconds({0, 10, 40, 40}, 20.0), 140.0);
}

TEST(Eta, NothingIsLeftAtTheEnd) {
  Eta eta(Work(std::nullopt));
  eta.See({40, 0, 320, 320}, 10.0);
  EXPECT_FALSE(eta.LeftSeconds({40, 0, 320, 320}, 10.0));
}

}  // namespace
}  // namespace spillway
