// Runs on a device that takes every liberty with the order of its streams must give the tokens of a
// host that does one thing after the other.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "src/compute/host_device.h"
#include "tests/policies/policy_test_util.h"
#include "tests/run/dummy_run.h"
#include "tests/run/late_device.h"
#include "tests/run/list_job.h"
#include "tests/trace_case.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

using Tokens = std::map<int64_t, std::vector<TokenId>>;  // by line

// Rows of different lengths, so that they end at different times and others take their places.
std::vector<Request> RaggedRows(int64_t num_rows) {
  std::vector<Request> rows;
  for (int64_t line = 1; line <= num_rows; ++line) {
    Request& request = rows.emplace_back();
    request.line = line;
    for (int64_t token = 0; token < 1 + line * 5 % 17; ++token) {
      request.prompt.push_back(static_cast<TokenId>((line * 37 + token * 11) % 90 + 3));
    }
    request.sampling.max_tokens = 2 + line * 3 % 7;
    request.sampling.ignore_eos = true;
  }
  return rows;
}

// Tokens of all rows; a row that failed has none.
Tokens TokensOf(const ListJob& job) {
  Tokens tokens;
  for (const auto& [line, completion] : job.finished) tokens[line] = completion.tokens;
  for (const auto& [line, code] : job.failed) tokens[line] = {};
  return tokens;
}

// Shares of weights, KV and hidden states on gpu and cpu, in percent; the rest is on disk.
struct Placing {
  int weights_gpu, weights_cpu;
  int kv_gpu, kv_cpu;
  int hidden_gpu, hidden_cpu;
  bool cpu_attention = false;
};

PerTier<double> Percent(int gpu, int cpu) { return testing::Share(gpu / 100.0, cpu / 100.0); }

// A block's shape, and which tokens stay.
struct Shape {
  int64_t rows;
  int64_t batches;
  KvPolicyKind kv;
};
constexpr Shape kShapes[] = {{5, 1, KvPolicyKind::kFull},
                             {2, 2, KvPolicyKind::kH2o},
                             {3, 3, KvPolicyKind::kFull},
                             {3, 3, KvPolicyKind::kH2o}};

class DeviceOrderTest : public ::testing::Test {
 protected:
  static constexpr int64_t kNumRows = 14;

  Plan MakePlanOf(const Placing& placing, const Shape& block) const {
    Machine machine;
    machine.device = Tier::kGpu;
    Policy policy;
    policy.weight_frac = Percent(placing.weights_gpu, placing.weights_cpu);
    policy.kv_frac = Percent(placing.kv_gpu, placing.kv_cpu);
    policy.activation_frac = Percent(placing.hidden_gpu, placing.hidden_cpu);
    policy.gpu_batch_size = block.rows;
    policy.num_gpu_batches = block.batches;
    policy.cpu_attention = placing.cpu_attention;
    policy.kv.kind = block.kv;
    policy.kv.budget.kept = {0.4, 0};
    policy.prefill_chunk = 16;
    return dummy_.PlanFor(machine, WorkOf(kNumRows, {17, 9}), policy);
  }

  Tokens Run(const Plan& plan, Device& device) {
    ListJob job(RaggedRows(kNumRows));
    dummy_.Run(plan, device, job);
    return TokensOf(job);
  }

  DummyRun dummy_{SmallOpt(3), 2};
};

constexpr Placing kPlacings[] = {
    {100, 0, 100, 0, 100, 0},     {0, 100, 0, 100, 0, 100},      {0, 0, 0, 0, 0, 0},
    {30, 40, 25, 50, 25, 50},     {0, 100, 100, 0, 100, 0},      {50, 0, 0, 0, 100, 0},
    {100, 0, 0, 0, 100, 0, true}, {0, 100, 0, 30, 0, 100, true},
};
TEST_F(DeviceOrderTest, AnyOrderThatTheMarksAllowGivesTheSameTokens) {
  for (const Placing& placing : kPlacings) {
    for (const Shape& block : kShapes) {
      SCOPED_TRACE(CaseOf("weights on gpu", placing.weights_gpu, "KV on gpu", placing.kv_gpu,
                          "rows", block.rows, "batches", block.batches, "KV",
                          KvPolicyName(block.kv)));
      const Plan plan = MakePlanOf(placing, block);
      HostDevice host;
      const Tokens expected = Run(plan, host);
      ASSERT_EQ(static_cast<int64_t>(expected.size()), kNumRows);
      for (uint32_t seed = 0; seed < 4; ++seed) {
        const Pace pace = seed == 0 ? Pace::kLate : seed == 1 ? Pace::kEarly : Pace::kRandom;
        LateDevice late(pace, seed);
        ASSERT_EQ(Run(plan, late), expected) << "seed " << seed;
      }
    }
  }
}

// The test above can fail: without marks a late compute finds its places filled with what comes
// next, and a store takes away what was there before.
TEST_F(DeviceOrderTest, WithoutMarksTheTokensAreWrong) {
  const Plan plan = MakePlanOf({0, 100, 0, 100, 0, 100}, {3, 3, KvPolicyKind::kFull});
  HostDevice host;
  LateDevice unordered(Pace::kLate, 1, Marks::kIgnored);
  EXPECT_NE(Run(plan, unordered), Run(plan, host));
}

}  // namespace
}  // namespace spillway
