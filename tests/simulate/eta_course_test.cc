// Runs on a virtual clock, followed by Eta: the time left is told well from a tenth of the run on.
#include <gtest/gtest.h>

#include <cmath>

#include "src/report/eta.h"
#include "src/simulate/simulate.h"
#include "tests/policies/policy_test_util.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

using testing::Share;
using testing::T4;

constexpr int64_t kSteps = 10;  // looks at a pass

const KernelNeeds kNeeds = {[](int64_t, int64_t, int) { return int64_t{0}; },
                            [](int64_t, int64_t, int) { return int64_t{0}; },
                            [](int64_t, int64_t, int) { return int64_t{0}; }};

// A pass after `before`, of which so many steps are done.
WorkDone During(const CoursePoint& before, const CoursePoint& after, int64_t step) {
  WorkDone done;
  done.prompt_tokens = std::llround(before.prompt_tokens);
  done.decode_tokens = std::llround(before.decode_tokens);
  done.pass.prompt_tokens = std::llround(after.prompt_tokens - before.prompt_tokens);
  done.pass.decode_tokens = std::llround(after.decode_tokens - before.decode_tokens);
  done.pass.cells = step;
  done.pass.num_cells = kSteps;
  return done;
}

struct Told {
  double worst_error = 0.0;  // of the whole run's time, in the part of the run that counts
  double first_frac = 1.0;   // of the run, when something was told for the first time
};

// Follows a run that takes the real course.
Told Follow(const std::vector<CoursePoint>& real, const ExpectedWork& expected, double from_frac) {
  const double whole_s = real.back().total_s();
  Eta eta(expected);
  Told told;
  CoursePoint before;
  for (const CoursePoint& after : real) {
    for (int64_t step = 1; step <= kSteps; ++step) {
      const double frac = static_cast<double>(step) / static_cast<double>(kSteps);
      const double now_s = before.total_s() + frac * (after.total_s() - before.total_s());
      eta.See(During(before, after, step), now_s);
      const std::optional<double> left_s = eta.LeftSeconds();
      if (!left_s) continue;
      told.first_frac = std::min(told.first_frac, now_s / whole_s);
      if (now_s < from_frac * whole_s) continue;
      told.worst_error = std::max(told.worst_error, std::abs(now_s + *left_s - whole_s) / whole_s);
    }
    before = after;
  }
  return told;
}

// Rates of a machine that is so many times as slow as it was believed to be.
Machine Slower(double times) {
  Machine machine = T4();
  for (const Link link : kAllLinks) machine.rates.link_bytes_per_s[link] /= times;
  machine.rates.gpu.memory_bytes_per_s /= times;
  for (MatmulRate& rate : machine.rates.gpu.matmul) rate.flops_per_s /= times;
  return machine;
}

struct FollowedRun {
  std::vector<CoursePoint> real;
  ExpectedWork expected;
};

FollowedRun RunOf(const Workload& work, int64_t rows, int64_t num_batches, double slower) {
  Policy policy;
  policy.weight_frac = Share(0.0, 1.0);
  policy.kv_frac = policy.activation_frac = Share(0.0, 1.0);
  policy.gpu_batch_size = rows;
  policy.num_gpu_batches = num_batches;
  const Model model = MakeModel(*BuiltInShape("opt-1.3b"));
  SimOptions every;
  every.walk_all = true;
  const Plan real = LayOut(model, Slower(slower), work, policy, kNeeds);
  const Plan believed = LayOut(model, T4(), work, policy, kNeeds);
  return {Simulate(real, work, every).prediction.course,
          ExpectedOf(work, Simulate(believed, work, {}).prediction)};
}

Workload Ragged(int64_t num_requests) {
  std::vector<RequestShape> rows;
  for (int64_t row = 0; row < num_requests; ++row)
    rows.push_back({16 + 97 * row % 400, 1 + 31 * row % 64});
  return WorkOf(std::move(rows));
}

struct Case {
  const char* name;
  Workload work;
  int64_t rows;
  int64_t num_batches;
};

std::vector<Case> Cases() {
  return {{"one block of rows that are alike", WorkOf(16, {256, 32}), 8, 2},
          {"many blocks, mostly prefill", WorkOf(40 * 16 + 3, {512, 8}), 8, 2},
          {"many blocks, mostly decode", WorkOf(20 * 16, {16, 64}), 8, 2},
          {"one block whose rows end one by one", Ragged(32), 16, 2},
          {"rows that take the places of others", Ragged(64 * 16), 8, 2}};
}

TEST(EtaOnCourse, IsWithinAFifthFromATenthOfTheRunOn) {
  for (const Case& example : Cases()) {
    for (const double slower : {1.0, 2.0, 0.6}) {
      const FollowedRun run = RunOf(example.work, example.rows, example.num_batches, slower);
      const Told told = Follow(run.real, run.expected, 0.1);
      EXPECT_LT(told.worst_error, 0.2) << example.name << ", " << slower << " times as slow";
      EXPECT_LT(told.first_frac, 0.1) << example.name;
    }
  }
}

TEST(EtaWithoutRates, WaitsUntilBothPhasesAreMeasured) {
  for (const Case& example : Cases()) {
    const FollowedRun run = RunOf(example.work, example.rows, example.num_batches, 1.0);
    ExpectedWork unknown = run.expected;
    unknown.course.clear();
    const Told told = Follow(run.real, unknown, 0.0);
    EXPECT_GT(told.first_frac, 0.0) << example.name;
    EXPECT_LT(told.worst_error, 0.5) << example.name;
  }
}

}  // namespace
}  // namespace spillway
