// Rows that keep less in one place, beside rows that keep all: the bits of a run whose policy says
// so of all rows, wherever KV lies and whether their prompts' common beginning is computed once.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "src/compute/host_device.h"
#include "src/requests/score_request.h"
#include "tests/policies/policy_test_util.h"
#include "tests/run/dummy_run.h"
#include "tests/run/list_job.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

constexpr int64_t kLayers = 3;
constexpr int64_t kHeads = 4;
constexpr int64_t kTokens = 100;
constexpr int64_t kPrompt = 80;

// All of the window's rows are the same text.
std::vector<TokenId> Text() {
  std::vector<TokenId> tokens;
  for (int64_t token = 0; token < kTokens; ++token)
    tokens.push_back(static_cast<TokenId>(token * token * 7 % 90 + 3));
  return tokens;
}

Request RowWith(int64_t line, const KvLess& less) {
  Request request = ScoreRequest({Text(), kPrompt, 0}, {kPrompt, false});
  request.line = line;
  request.kv_less = less;
  return request;
}

const std::vector<KvLess> kLess = {{}, {1, 2, 0.2}, {0, 0, 0.05}, {2, 3, 0.6}, {1, -1, 0.5}};

// Each head of a decoder layer keeps all, but for those that keep less.
KvPolicy PolicyWith(const KvLess& less) {
  KvPolicy kv;
  kv.kind = KvPolicyKind::kH2o;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::vector<KvBudget>& heads = kv.head_budgets.emplace_back();
    for (int64_t head = 0; head < kHeads; ++head)
      heads.push_back({{less.IsAt({layer, head}) ? less.kept_frac : 1.0, 0}, {}, {}});
  }
  return kv;
}

struct Placing {
  std::string name;
  Tier device = Tier::kCpu;
  PerTier<double> kv;
  int64_t rows = 5;
  int64_t batches = 1;
  bool cpu_attention = false;
  KvBits bits = {};
};

class KvLessTest : public ::testing::TestWithParam<Placing> {
 protected:
  Plan PlanOf(const KvPolicy& kv, int64_t num_rows, int64_t prefix) const {
    const Placing& placing = GetParam();
    Machine machine;
    machine.device = placing.device;
    Policy policy;
    policy.weight_frac =
        placing.device == Tier::kGpu ? testing::Share(0.3, 0.3) : testing::Share(0.0, 0.5);
    policy.kv_frac = placing.kv;
    policy.activation_frac =
        placing.device == Tier::kGpu ? testing::Share(1.0, 0.0) : testing::Share(0.0, 1.0);
    policy.gpu_batch_size = placing.rows;
    policy.num_gpu_batches = placing.batches;
    policy.cpu_attention = placing.cpu_attention;
    policy.kv_bits = placing.bits;
    policy.kv = kv;
    Workload work = WorkOf(num_rows, {kPrompt, kTokens - kPrompt, 1});
    const std::vector<TokenId> text = Text();
    work.prefix.assign(text.begin(), text.begin() + prefix);
    return dummy_.PlanFor(machine, work, policy);
  }

  std::map<int64_t, std::vector<float>> Run(const Plan& plan, const std::vector<Request>& rows) {
    ListJob job(rows);
    HostDevice device;
    dummy_.Run(plan, device, job);
    EXPECT_TRUE(job.failed.empty());
    std::map<int64_t, std::vector<float>> logprobs;
    for (const auto& [line, completion] : job.finished) logprobs[line] = completion.scores.logprobs;
    return logprobs;
  }

  DummyRun dummy_{SmallOpt(kLayers), 2};
};

TEST_P(KvLessTest, EachRowHasTheBitsOfARunWhosePolicySaysSo) {
  std::vector<Request> rows;
  std::map<int64_t, std::vector<float>> expected;
  for (const KvLess& less : kLess) {
    const auto line = static_cast<int64_t>(rows.size()) + 1;
    rows.push_back(RowWith(line, less));
    const std::vector<Request> alone = {RowWith(line, {})};
    expected.merge(Run(PlanOf(PolicyWith(less), 1, 0), alone));
  }
  ASSERT_EQ(expected.size(), rows.size());
  for (std::size_t row = 1; row < rows.size(); ++row)
    EXPECT_NE(expected.at(static_cast<int64_t>(row) + 1), expected.at(1)) << "less is nothing less";
  for (const int64_t prefix : {0, 64}) {
    const Plan plan = PlanOf(PolicyWith({}), std::ssize(rows), prefix);
    EXPECT_EQ(plan.prefix.num_tokens(), plan.AttendsBeside() ? 0 : prefix);
    EXPECT_EQ(Run(plan, rows), expected) << "prefix " << prefix;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Placings, KvLessTest,
    ::testing::Values(Placing{"memory", Tier::kCpu, testing::Share(0.0, 1.0)},
                      Placing{"small_batches", Tier::kCpu, testing::Share(0.0, 1.0), 2, 2},
                      Placing{"codes", Tier::kCpu, testing::Share(0.0, 1.0), 5, 1, false, {8, 4}},
                      Placing{"disk", Tier::kCpu, testing::Share(0.0, 0.0)},
                      Placing{"disk_batches", Tier::kCpu, testing::Share(0.0, 0.4), 2, 2},
                      Placing{"gpu", Tier::kGpu, testing::Share(1.0, 0.0)},
                      Placing{"gpu_from_all", Tier::kGpu, testing::Share(0.4, 0.3), 3, 2},
                      Placing{"beside", Tier::kGpu, testing::Share(0.0, 0.7), 3, 2, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace spillway
