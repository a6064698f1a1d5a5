#include "policies/search/linear_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>

namespace spillway {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Least 2 x + 3 y with x + y >= 4 and x <= 3: x = 3, y = 1.
TEST(LinearProgram, SolvesByHand) {
  LinearProgram program;
  program.cost = {2.0, 3.0};
  program.low = {0.0, 0.0};
  program.high = {3.0, kInfinity};
  program.rows = {{{-1.0, -1.0}, RowSense::kAtMost, -4.0}};
  const auto solution = Solve(program);
  ASSERT_TRUE(solution.has_value());
  EXPECT_NEAR(solution->cost, 9.0, 1e-9);
  EXPECT_NEAR(solution->x[0], 3.0, 1e-9);
  EXPECT_NEAR(solution->x[1], 1.0, 1e-9);
  // A demand that is one less saves one y.
  EXPECT_NEAR(solution->duals[0], -3.0, 1e-9);
}

// Shares of one class in a fast tier of room 0.25 and a slow one: time is the slow share's.
TEST(LinearProgram, FillsTheFastTier) {
  LinearProgram program;
  program.cost = {0.0, 0.0, 1.0};  // fast, slow, seconds
  program.low = {0.0, 0.0, 0.0};
  program.high = {1.0, 1.0, kInfinity};
  program.rows = {{{1.0, 1.0, 0.0}, RowSense::kEqual, 1.0},
                  {{8.0, 0.0, 0.0}, RowSense::kAtMost, 2.0},
                  {{0.0, 10.0, -1.0}, RowSense::kAtMost, 0.0}};
  const auto solution = Solve(program);
  ASSERT_TRUE(solution.has_value());
  EXPECT_NEAR(solution->x[0], 0.25, 1e-9);
  EXPECT_NEAR(solution->cost, 7.5, 1e-9);
  EXPECT_NEAR(solution->duals[1], -10.0 / 8.0, 1e-9);  // one more unit holds 1/8 of the class
}

TEST(LinearProgram, SaysThatNothingFits) {
  LinearProgram program;
  program.cost = {1.0};
  program.low = {0.0};
  program.high = {1.0};
  program.rows = {{{-1.0}, RowSense::kAtMost, -2.0}};
  EXPECT_FALSE(Solve(program).has_value());
}

// Shares of weights, KV and states on GPU, CPU and disk, and the seconds of a prefill and a decode
// pass, on a machine where too little memory is left for the KV. CLP's dual simplex finds that; its
// primal one, when it went on from there, ended in an error.
TEST(LinearProgram, SaysThatNothingFitsWhereASimplexThatGoesOnFromAnotherGivesUp) {
  LinearProgram program;
  program.cost = {0, 0.00127, 0.00254, 0, 0.00127, 0.00254, 0, 0.00127, 0.00254, 1, 511};
  program.low.assign(11, 0.0);
  program.high.assign(9, 1.0);
  program.high.insert(program.high.end(), 2, kInfinity);
  program.rows = {
      {{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0}, RowSense::kEqual, 1},
      {{0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0}, RowSense::kEqual, 1},
      {{0, -11.5, -11.5, 0, -174, -174, 0, -1.72, -1.72, 0, 0}, RowSense::kAtMost, -176},
      {{0, 12.4, 0.0118, 0, 176, 0.0171, 0, 2.75, 0.0167, 0, 0}, RowSense::kAtMost, 113},
      {{0, 0, 12.4, 0, 0, 176, 0, 0, 2.75, 0, 0}, RowSense::kAtMost, 57.4},
      {{0, 0, 0, 0, 0, 36.9, 0, 0, 38, -1, 0}, RowSense::kAtMost, 0},
      {{0, 0.295, 0.295, 0, 0, 0, 0, 2.16, 2.16, -1, 0}, RowSense::kAtMost, 0},
      {{0, 0, 7.79, 0, 0, 36.9, 0, 0, 95, -1, 0}, RowSense::kAtMost, 0},
      {{0, 0.295, 0.295, 0, 3.14, 3.14, 0, 0.00422, 0.00422, 0, -1}, RowSense::kAtMost, 0},
      {{0, 0, 0, 0, 0.0319, 0.0319, 0, 0.00411, 0.00411, 0, -1}, RowSense::kAtMost, 0},
      {{0, 0, 7.79, 0, 0, 83.5, 0, 0, 0.186, 0, -1}, RowSense::kAtMost, 0}};
  EXPECT_FALSE(Solve(program).has_value());
}

// x and y in [0, 1], three rows. The least of a linear program is at a corner: a crossing of two of
// the seven lines.
struct Line {
  double x = 0.0;
  double y = 0.0;
  double limit = 0.0;  // x * X + y * Y <= limit
};

std::optional<double> BestCorner(const std::vector<Line>& lines, double cost_x, double cost_y) {
  std::optional<double> best;
  for (const Line& one : lines) {
    for (const Line& two : lines) {
      const double determinant = one.x * two.y - one.y * two.x;
      if (std::abs(determinant) < 1e-9) continue;
      const double x = (one.limit * two.y - one.y * two.limit) / determinant;
      const double y = (one.x * two.limit - one.limit * two.x) / determinant;
      bool inside = true;
      for (const Line& line : lines) inside &= line.x * x + line.y * y <= line.limit + 1e-7;
      const double cost = cost_x * x + cost_y * y;
      if (inside && (!best || cost < *best)) best = cost;
    }
  }
  return best;
}

TEST(LinearProgram, AgreesWithEnumerationOfCorners) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> draw(-1.0, 1.0);
  int num_feasible = 0;
  for (int trial = 0; trial < 500; ++trial) {
    LinearProgram program;
    program.cost = {draw(random), draw(random)};
    program.low = {0.0, 0.0};
    program.high = {1.0, 1.0};
    std::vector<Line> lines = {{1, 0, 1}, {0, 1, 1}, {-1, 0, 0}, {0, -1, 0}};
    for (int row = 0; row < 3; ++row) {
      const Line line = {draw(random), draw(random), draw(random) + 0.4};
      lines.push_back(line);
      program.rows.push_back({{line.x, line.y}, RowSense::kAtMost, line.limit});
    }
    const std::optional<double> expected = BestCorner(lines, program.cost[0], program.cost[1]);
    const auto solution = Solve(program);
    ASSERT_EQ(solution.has_value(), expected.has_value()) << trial;
    if (!expected) continue;
    ++num_feasible;
    EXPECT_NEAR(solution->cost, *expected, 1e-6) << trial;
  }
  EXPECT_GT(num_feasible, 200);
  EXPECT_LT(num_feasible, 500);
}

}  // namespace
}  // namespace spillway
