#include "policies/search/policy_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "spillway/error.h"
#include "src/formats/machine_file.h"
#include "src/simulate/simulate.h"
#include "tests/policies/policy_test_util.h"
#include "tests/trace_case.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;
using testing::Share;
using testing::T4;

const KernelNeeds kNeeds = {
    [](int64_t rows, int64_t in, int) { return rows * in * 6; },
    [](int64_t slots, int64_t head_dim, int threads) { return slots * head_dim * threads; }};

Prediction Simulated(const Plan& plan, const Workload& work) {
  SimOptions options;
  options.max_cells = 20'000;
  return Simulate(plan, work, options).prediction;
}

struct Case {
  const char* model;
  RequestShape row;
  int64_t num_requests;  // 0: endless
};

SearchResult Search(const Case& c, const Machine& machine, const GivenPolicy& given = {},
                    const std::vector<StorageChoice>& storage = {StorageChoice{}}) {
  const Model model = MakeModel(*BuiltInShape(c.model));
  const Workload work = WorkOf(c.num_requests > 0 ? c.num_requests : 4096, c.row);
  return SearchPolicies(
      {model, machine, work, given, kNeeds, Simulated, storage, c.num_requests == 0});
}

constexpr std::array kSixteen = {16};
constexpr std::array kSixteenOfKv = {KvBits(16)};

TEST(PolicySearch, ThePlannerAcceptsAllItReturns) {
  const Machine cpu = [] {
    Machine machine = T4();
    machine.device = Tier::kCpu;
    machine.cap_bytes = {{0, int64_t{20} << 30, int64_t{500} << 30}};
    return machine;
  }();
  for (const Case& c : {Case{"opt-30b", {512, 32}, 0}, Case{"opt-6.7b", {512, 32}, 300},
                        Case{"opt-175b", {512, 32}, 0}, Case{"opt-13b", {100, 7}, 10}}) {
    for (const Machine& machine : {T4(), cpu}) {
      SCOPED_TRACE(CaseOf("model", c.model, "device", TierName(machine.device)));
      const SearchResult result = Search(c, machine);
      const ModelShape shape = *BuiltInShape(c.model);
      ASSERT_TRUE(result.feasible())
          << c.model << " lacks " << result.shortage.bytes[result.shortage.most()] << " of "
          << TierName(result.shortage.most()) << " on " << TierName(machine.device);
      EXPECT_THAT(result.best.size(), ::testing::Le(10));
      for (const Candidate& candidate : result.best) {
        const int64_t rows = candidate.policy.gpu_batch_size * candidate.policy.num_gpu_batches;
        const Workload work = WorkOf(c.num_requests > 0 ? c.num_requests : rows, c.row);
        EXPECT_NO_THROW(MakePlan(MakeModel(shape), machine, work, candidate.policy, kNeeds))
            << c.model;
        EXPECT_GT(candidate.prediction.generated_tokens_per_s, 0.0);
        EXPECT_FALSE(candidate.policy.cpu_attention &&
                     SharesAttention(machine, candidate.policy.kv_frac));
      }
      EXPECT_TRUE(std::ranges::is_sorted(result.best, std::greater<>(), [](const Candidate& a) {
        return a.prediction.generated_tokens_per_s;
      }));
    }
  }
}

// Attention on the CPU holds no prefix, and may be the faster one all the same.
TEST(PolicySearch, LooksAtBothPlacesOfAttentionWhereRequestsBeginAlike) {
  Workload work = WorkOf(100, {510, 128});
  work.prefix.assign(448, 7);
  const Model model = MakeModel(*BuiltInShape("opt-30b"));
  const Machine machine =
      ReadMachine(std::filesystem::path(SPILLWAY_SOURCE_DIR) / "examples/machines/rtx-4090.json");
  const auto rate_of = [&](std::optional<bool> cpu_attention) {
    GivenPolicy given;
    given.cpu_attention = cpu_attention;
    const SearchResult result =
        SearchPolicies({model, machine, work, given, kNeeds, Simulated, {StorageChoice{}}, false});
    return result.best.front().prediction.generated_tokens_per_s;
  };
  const double best = rate_of({});
  EXPECT_GE(best, 0.99 * rate_of(true));
  EXPECT_GE(best, 0.99 * rate_of(false));
}

// FlexGen's policies for OPT-30B on a T4 (benchmark suites of FlexGen and H2O), in our schedule.
struct Published {
  RequestShape row;
  int64_t batch;
  int64_t num_batches;
};

TEST(PolicySearch, IsAtLeastAsFastAsWhatWasPublished) {
  for (const Published& point :
       {Published{{512, 32}, 48, 3}, Published{{512, 512}, 40, 2}, Published{{512, 1024}, 48, 1}}) {
    SCOPED_TRACE(CaseOf("prompt", point.row.prompt_tokens, "batch", point.batch, "batches",
                        point.num_batches));
    Policy policy;
    policy.weight_frac = Share(0.2, 0.8);
    policy.kv_frac = policy.activation_frac = Share(0.0, 1.0);
    policy.gpu_batch_size = point.batch;
    policy.num_gpu_batches = point.num_batches;
    policy.cpu_attention = true;
    const ModelShape shape = *BuiltInShape("opt-30b");
    const Workload work = WorkOf(point.batch * point.num_batches, point.row);
    const Plan plan = LayOut(MakeModel(shape), T4(), work, policy, kNeeds);
    const SearchResult result = Search({"opt-30b", point.row, 0}, T4());
    ASSERT_TRUE(result.feasible());
    EXPECT_THAT(result.best[0].prediction.generated_tokens_per_s,
                Ge(Simulated(plan, work).generated_tokens_per_s));
  }
}

TEST(PolicySearch, NamesTheTierThatIsShort) {
  Machine machine = T4();
  machine.cap_bytes = {{int64_t{16} << 30, int64_t{1} << 30, int64_t{10} << 30}};
  const SearchResult result = Search({"opt-30b", {512, 32}, 0}, machine);
  EXPECT_FALSE(result.feasible());
  EXPECT_EQ(result.shortage.most(), Tier::kDisk);
  EXPECT_GT(result.shortage.bytes[Tier::kDisk], int64_t{20} << 30);
}

// The disk has room for the weights that lie there but not for a store, which holds them all.
TEST(PolicySearch, AStoreThatDoesNotFitIsShortOfDiskAndFitsWithAsMuchMore) {
  Machine machine = T4();
  machine.cap_bytes = {{int64_t{16} << 30, int64_t{1} << 30, int64_t{45} << 30}};
  const SearchResult result = Search({"opt-30b", {512, 32}, 0}, machine);
  ASSERT_FALSE(result.feasible());
  EXPECT_EQ(result.shortage.most(), Tier::kDisk);
  machine.cap_bytes[Tier::kDisk] += result.shortage.bytes[Tier::kDisk] + (1 << 20);
  EXPECT_TRUE(Search({"opt-30b", {512, 32}, 0}, machine).feasible());
}

TEST(PolicySearch, KeepsWhatIsGiven) {
  GivenPolicy given;
  given.gpu_batch_size = 7;
  given.num_gpu_batches = 2;
  given.prefill_chunk = 300;
  given.cpu_attention = false;
  given.placement = Placement{Share(0.1, 0.9), Share(0.0, 1.0), Share(1.0, 0.0)};
  const SearchResult result = Search({"opt-30b", {512, 32}, 100}, T4(), given);
  ASSERT_EQ(result.best.size(), 1U);
  const Policy& policy = result.best[0].policy;
  EXPECT_EQ(policy.gpu_batch_size, 7);
  EXPECT_EQ(policy.num_gpu_batches, 2);
  EXPECT_EQ(policy.prefill_chunk, 300);
  EXPECT_FALSE(policy.cpu_attention);
  EXPECT_EQ(policy.kv_frac, given.placement->kv);
  EXPECT_EQ(policy.activation_frac, given.placement->activations);
  for (const Tier tier : kAllTiers) {
    EXPECT_NEAR(policy.weight_frac[tier], given.placement->weights[tier], 1e-9);
  }
}

// A row's tokens must not depend on whether the GPU or the CPU attends to it.
// Longer chunks take memory from the weights. They pay where prompts are most of the work and a GPU
// multiplies many rows faster, not where answers are.
TEST(PolicySearch, ChoosesTheChunkByThePrompts) {
  Machine machine = T4();
  MatmulRate many = machine.rates.gpu.matmul.back();
  many.flops_per_s *= 1.5;
  many.narrow_flops_per_s *= 1.5;
  many.rows = kGpuPrefillChunk;
  machine.rates.gpu.matmul.push_back(many);
  const auto chunk_of = [&](const RequestShape& row) {
    return Search({"opt-6.7b", row, 100}, machine).best[0].policy.prefill_chunk;
  };
  EXPECT_EQ(chunk_of({1024, 1}), kGpuPrefillChunk);
  EXPECT_EQ(chunk_of({1, 1024}), kPrefillChunk);
}

TEST(PolicySearch, KvThatIsSharedIsAttendedToWhereItIsComputed) {
  GivenPolicy given;
  given.placement = Placement{Share(0.2, 0.8), Share(0.1, 0.9), Share(0.0, 1.0)};
  const SearchResult result = Search({"opt-30b", {512, 512}, 0}, T4(), given);
  ASSERT_TRUE(result.feasible());
  for (const Candidate& candidate : result.best) EXPECT_FALSE(candidate.policy.cpu_attention);
}

// Each budget that is allowed has its best policy in the result, and none is listed twice.
TEST(PolicySearch, TriesTheBudgetsThatAreAllowed) {
  const ModelShape shape = *BuiltInShape("opt-30b");
  const Workload work = WorkOf(4096, {512, 32});
  KernelNeeds needs = kNeeds;
  needs.eviction_bytes = kNeeds.attention_bytes;
  GivenPolicy given;
  given.kv = KvPolicy{KvPolicyKind::kH2o, {{0.2, 0}, {}, {}}, {}, 0};
  const std::array<TokenAmount, 3> budgets = {TokenAmount{0.5, 0}, {0.1, 0}, {0.0, 300}};
  const SearchResult result =
      SearchPolicies({MakeModel(shape), T4(), work, given, needs, Simulated,
                      StorageChoices(kSixteen, kSixteenOfKv, budgets), true});
  ASSERT_TRUE(result.feasible());
  EXPECT_EQ(result.best.front().storage.kv_budget, budgets[1]);
  for (const TokenAmount& budget : budgets) {
    SCOPED_TRACE(CaseOf("share", budget.frac, "tokens", budget.tokens));
    const auto found = std::ranges::find_if(
        result.best, [&](const Candidate& c) { return c.storage.kv_budget == budget; });
    ASSERT_NE(found, result.best.end());
    EXPECT_EQ(found->policy.kv.budget.kept, budget);
    EXPECT_EQ(found->policy.kv.kind, KvPolicyKind::kH2o);
  }
  EXPECT_LE(result.best.size(), 10U);
}

// Some placements that are tried fit nowhere; CLP gave up on one of them with these rates and caps.
TEST(PolicySearch, FindsPoliciesWhereMostPlacementsFitNowhere) {
  Machine machine = ReadMachine(SPILLWAY_SOURCE_DIR "/examples/machines/h100.json");
  machine.cap_bytes[Tier::kGpu] = int64_t{15} << 30;
  machine.cap_bytes[Tier::kCpu] = 121'633'708'032;
  EXPECT_FALSE(Search({"opt-6.7b", {512, 512}, 4096}, machine).best.empty());
}

TEST(PolicySearch, ListsNoPolicyTwice) {
  const SearchResult result = Search({"opt-6.7b", {512, 32}, 7}, T4());
  ASSERT_GT(result.best.size(), 1U);
  for (const Candidate& a : result.best) {
    EXPECT_EQ(1, std::ranges::count_if(result.best, [&](const Candidate& b) {
                return a.prediction.prefill_s == b.prediction.prefill_s &&
                       a.prediction.decode_s == b.prediction.decode_s &&
                       a.planned_bytes == b.planned_bytes &&
                       a.policy.gpu_batch_size == b.policy.gpu_batch_size;
              }));
  }
}

TEST(StorageChoices, AreAllCombinations) {
  EXPECT_EQ(StorageChoices(kSixteen, kSixteenOfKv, {}),
            (std::vector<StorageChoice>{{16, 16, std::nullopt}}));
  EXPECT_EQ(StorageChoices(kStoredBits, kStoredKvBits, {}).size(), 12U);
  const std::array<TokenAmount, 2> budgets = {TokenAmount{0.2, 0}, {0.4, 0}};
  EXPECT_EQ(StorageChoices(kStoredBits, kSixteenOfKv, budgets).size(), 6U);
}

// The KV of one short row is nothing beside the weights.
TEST(PolicySearch, LosesNoBitsForLessThanAPercent) {
  const SearchResult result =
      Search({"opt-6.7b", {32, 32}, 1}, T4(), {}, StorageChoices(kSixteen, kStoredKvBits, {}));
  ASSERT_TRUE(result.feasible());
  const Candidate& leader = result.best.front();
  EXPECT_EQ(leader.policy.kv_bits, 16);
  const auto faster = std::ranges::find_if(result.best, [&](const Candidate& other) {
    return other.prediction.generated_tokens_per_s > leader.prediction.generated_tokens_per_s;
  });
  ASSERT_NE(faster, result.best.end());
  EXPECT_TRUE(faster->policy.kv_bits.coded());
}

// Fewer bits are the faster where the links are the limit, and the planner accepts what is found.
TEST(PolicySearch, TriesFewerBitsWhereAllowed) {
  const ModelShape shape = *BuiltInShape("opt-30b");
  const RequestShape request = {512, 1024};  // few enough tokens of prompts that bits matter
  const Workload work = WorkOf(1, request);
  const SearchResult result = SearchPolicies({MakeModel(shape),
                                              T4(),
                                              work,
                                              {},
                                              kNeeds,
                                              Simulated,
                                              StorageChoices(kStoredBits, kStoredKvBits, {}),
                                              true});
  ASSERT_TRUE(result.feasible());
  const Candidate& best = result.best.front();
  EXPECT_LT(best.policy.weight_bits, 16);
  const auto sixteen = std::ranges::find_if(
      result.best, [](const Candidate& c) { return c.storage == StorageChoice{}; });
  ASSERT_NE(sixteen, result.best.end());
  EXPECT_GT(best.prediction.generated_tokens_per_s, sixteen->prediction.generated_tokens_per_s);
  for (const Candidate& candidate : result.best) {
    ModelShape stored = shape;
    stored.weight_bits = candidate.policy.weight_bits;
    const int64_t rows = candidate.policy.gpu_batch_size * candidate.policy.num_gpu_batches;
    EXPECT_NO_THROW(
        MakePlan(MakeModel(stored), T4(), WorkOf(rows, request), candidate.policy, kNeeds));
  }
}

// Rates of links and units, and caps, drawn anew.
Machine RandomMachine(std::mt19937& random) {
  Machine machine = T4();
  std::uniform_real_distribution<double> power(-1.0, 1.0);
  for (double& rate : machine.rates.link_bytes_per_s.values) rate *= std::pow(10.0, power(random));
  machine.rates.gpu.memory_bytes_per_s *= std::pow(10.0, power(random));
  std::uniform_real_distribution<double> cap(0.05, 1.0);
  machine.cap_bytes[Tier::kGpu] = static_cast<int64_t>(cap(random) * 1e9);
  machine.cap_bytes[Tier::kCpu] = static_cast<int64_t>(cap(random) * 1e9);
  machine.cap_bytes[Tier::kDisk] = static_cast<int64_t>(cap(random) * 2e9);
  return machine;
}

std::vector<PerTier<double>> Grid() {
  std::vector<PerTier<double>> grid;
  for (int gpu = 0; gpu <= 4; ++gpu) {
    for (int cpu = 0; gpu + cpu <= 4; ++cpu) grid.push_back(Share(0.25 * gpu, 0.25 * cpu));
  }
  return grid;
}

// No placement of a grid is faster than the one that the program finds.
TEST(PlacementLp, BeatsEveryPlacementOfAGrid) {
  std::mt19937 random(11);
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = WorkOf(16, {128, 16});
  const std::vector<PerTier<double>> grid = Grid();
  int num_feasible = 0;
  for (int trial = 0; trial < 8; ++trial) {
    const Machine machine = RandomMachine(random);
    Policy policy;
    policy.gpu_batch_size = 8;
    const PlacementLp program(MakeModel(shape), machine, work, policy, kNeeds);
    PlacementLp::Limits limits;
    limits.num_batches = 2;
    limits.cap_bytes = machine.cap_bytes;
    const auto best = program.Solve(limits);
    PlacementLp::Limits fixed = limits;
    for (const auto& weights : grid) {
      for (const auto& kv : grid) {
        for (const auto& activations : grid) {
          fixed.weights = weights;
          fixed.kv = kv;
          fixed.activations = activations;
          const auto answer = program.Solve(fixed);
          if (!answer) continue;
          ++num_feasible;
          ASSERT_TRUE(best.has_value()) << trial;
          ASSERT_LE(best->block_s, answer->block_s * (1 + 1e-4)) << trial;
        }
      }
    }
  }
  EXPECT_GT(num_feasible, 1000);
}

}  // namespace
}  // namespace spillway
