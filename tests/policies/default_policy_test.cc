#include "policies/search/default_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/plan/plan_test_util.h"
#include "tests/trace_case.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(DefaultPolicyTest, ShrinksTheBatchUntilItFits) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = WorkOf(512, {1000, 1000});
  const Policy roomy =
      DefaultPolicy(MakeModel(shape), MachineWith(int64_t{1} << 40), work, {}, kNeeds);
  EXPECT_EQ(roomy.gpu_batch_size, 64);
  const Machine tight = MachineWith(int64_t{2} << 30);
  const Policy small = DefaultPolicy(MakeModel(shape), tight, work, {}, kNeeds);
  EXPECT_LT(small.gpu_batch_size, 64);
  EXPECT_GE(small.gpu_batch_size, 16);
  EXPECT_TRUE(Fits(LayOut(MakeModel(shape), tight, work, small, kNeeds)));
}

TEST(DefaultPolicyTest, KeepsOneBatchWhereAllIsInPlace) {
  GivenPolicy given;
  given.gpu_batch_size = 2;
  const Policy policy =
      DefaultPolicy(MakeModel(*BuiltInShape("opt-125m")), MachineWith(int64_t{8} << 30),
                    WorkOf(512, {100, 100}), given, kNeeds);
  EXPECT_EQ(policy.num_gpu_batches, 1);
  EXPECT_EQ(policy.weight_frac[Tier::kCpu], 1.0);
}

// Experts are multiplied with rows of all batches, of which each gets a part.
TEST(DefaultPolicyTest, TakesMoreBatchesWhereExpertsAreInPlace) {
  GivenPolicy given;
  const auto policy_of = [&given](const char* shape, int64_t num_requests) {
    return DefaultPolicy(MakeModel(*BuiltInShape(shape)),
                         MachineWith(int64_t{1} << 40, int64_t{1} << 40),
                         WorkOf(num_requests, {32, 32}), given, kNeeds);
  };
  const Policy two_of_eight = policy_of("mixtral-8x7b", 1000);
  EXPECT_EQ(two_of_eight.gpu_batch_size, 64);
  EXPECT_EQ(two_of_eight.num_gpu_batches, 4);
  EXPECT_EQ(policy_of("qwen3-30b-a3b", 1000).num_gpu_batches, 8);  // a sixteenth each
  EXPECT_EQ(policy_of("qwen3-30b-a3b", 100).num_gpu_batches, 2);
  EXPECT_EQ(policy_of("opt-6.7b", 1000).num_gpu_batches, 1);
  given.placement = Placement{AllOn(Tier::kCpu), AllOn(Tier::kCpu), AllOn(Tier::kDisk)};
  EXPECT_EQ(policy_of("mixtral-8x7b", 1000).num_gpu_batches, 1);  // states are gathered by batches
  given.placement.reset();
  given.gpu_batch_size = 4;
  EXPECT_EQ(policy_of("mixtral-8x7b", 1000).num_gpu_batches, 1);
}

TEST(DefaultPolicyTest, TakesLongChunksWhereAGpuHasRoom) {
  const Model model = MakeModel(*BuiltInShape("opt-125m"));
  const auto chunk_with = [&](int64_t gpu_bytes, const GivenPolicy& given) {
    Machine machine = MachineWith(int64_t{8} << 30);
    machine.device = Tier::kGpu;
    machine.cap_bytes[Tier::kGpu] = gpu_bytes;
    return DefaultPolicy(model, machine, WorkOf(4, {100, 100}), given, kNeeds).prefill_chunk;
  };
  GivenPolicy given;
  EXPECT_EQ(chunk_with(int64_t{8} << 30, given), kGpuPrefillChunk);
  EXPECT_LE(chunk_with(48 * kMiB, given), kPrefillChunk);
  given.prefill_chunk = 64;
  EXPECT_EQ(chunk_with(int64_t{8} << 30, given), 64);
}

// Weights leave for a block that pays, and come back as far as there is room.
TEST(DefaultPolicyTest, SpillsWeightsForALargeBlock) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  Machine machine = MachineWith(int64_t{2} << 30, int64_t{100} << 30);
  const Workload work = WorkOf(256, {32, 64});
  const Policy policy = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  EXPECT_GT(policy.weight_frac[Tier::kDisk], 0.0);
  EXPECT_GE(policy.gpu_batch_size * policy.num_gpu_batches, 64);
  EXPECT_TRUE(Fits(LayOut(MakeModel(shape), machine, work, policy, kNeeds)));
}

TEST(DefaultPolicyTest, NeverChangesWhatWasGiven) {
  GivenPolicy given;
  given.gpu_batch_size = 256;
  given.num_gpu_batches = 2;
  given.prefill_chunk = 64;
  const Policy policy =
      DefaultPolicy(MakeModel(*BuiltInShape("opt-125m")), MachineWith(int64_t{2} << 30),
                    WorkOf(512, {1000, 1000}), given, kNeeds);
  EXPECT_EQ(policy.gpu_batch_size, 256);
  EXPECT_EQ(policy.num_gpu_batches, 2);
  EXPECT_EQ(policy.prefill_chunk, 64);
}

// 128 rows of opt-1.3b have 2.25 GiB of KV, its weights 2.45 GiB.
TEST(DefaultPolicyTest, SpillsKvWhereTheBlockWasGiven) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  Machine machine = MachineWith(1030 * kMiB, int64_t{100} << 30);
  for (const int64_t rows : {128, 256}) {
    SCOPED_TRACE(CaseOf("rows", rows));
    GivenPolicy given;
    given.gpu_batch_size = rows;
    const Policy policy =
        DefaultPolicy(MakeModel(shape), machine, WorkOf(256, {32, 64}), given, kNeeds);
    EXPECT_EQ(policy.gpu_batch_size, rows);
    const Plan plan = LayOut(MakeModel(shape), machine, WorkOf(256, {32, 64}), policy, kNeeds);
    EXPECT_TRUE(Fits(plan));
    EXPECT_EQ(policy.activation_frac[Tier::kCpu], 1.0);
    EXPECT_EQ(policy.prefill_chunk, 512);
    EXPECT_GT(plan.kv[Tier::kDisk].rows, 0);
    // The rest of the memory is used.
    EXPECT_GT(plan.PlannedBytes(Tier::kCpu), 900 * kMiB);
  }
}

// A block of few rows that fits is left for a large one with KV on disk, when that reads less a
// row.
TEST(DefaultPolicyTest, SpillsKvOfABlockThatWouldBeSmall) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  Machine machine = MachineWith(420 * kMiB, int64_t{100} << 30);
  const Workload work = WorkOf(256, {32, 64});
  const Policy policy = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  EXPECT_TRUE(Fits(LayOut(MakeModel(shape), machine, work, policy, kNeeds)));
  EXPECT_GT(policy.kv_frac[Tier::kDisk], 0.0);
  EXPECT_GE(policy.gpu_batch_size * policy.num_gpu_batches, 20);
}

// Another batch costs little memory where KV is on disk, and saves a read of all weights.
TEST(DefaultPolicyTest, TakesAsManyBatchesOfASmallBatchAsFit) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  Machine machine = MachineWith(700 * kMiB, int64_t{100} << 30);
  const Workload work = WorkOf(64, {900, 100});
  const Policy policy = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  EXPECT_LT(policy.gpu_batch_size, 64);
  EXPECT_GE(policy.gpu_batch_size * policy.num_gpu_batches, 64);
}

// 1 GiB of disk is too small for the weights, and of use for KV.
TEST(DefaultPolicyTest, UsesADiskThatIsTooSmallForTheWeights) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  Machine machine = MachineWith(2700 * kMiB, int64_t{1} << 30);
  const Workload work = WorkOf(256, {512, 32});
  const Policy policy = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  const Plan plan = LayOut(MakeModel(shape), machine, work, policy, kNeeds);
  EXPECT_TRUE(Fits(plan));
  EXPECT_GT(policy.gpu_batch_size * policy.num_gpu_batches, 3);
  EXPECT_GT(plan.kv[Tier::kDisk].rows, 0);
}

// A refusal asks for the least of all placements.
TEST(DefaultPolicyTest, LacksNoMoreThanAnyPlacementInWholeTiers) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  Machine machine = MachineWith(20 * kMiB, int64_t{100} << 30);
  const Workload work = WorkOf(16, {20, 24});
  const Policy chosen = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  const int64_t needed =
      LayOut(MakeModel(shape), machine, work, chosen, kNeeds).PlannedBytes(Tier::kCpu);
  ASSERT_GT(needed, machine.cap_bytes[Tier::kCpu]);
  machine.cap_bytes[Tier::kCpu] = needed;
  const Policy given_more = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  EXPECT_TRUE(Fits(LayOut(MakeModel(shape), machine, work, given_more, kNeeds)));
  machine.cap_bytes[Tier::kCpu] = needed - kMiB;
  const Policy given_less = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  EXPECT_FALSE(Fits(LayOut(MakeModel(shape), machine, work, given_less, kNeeds)));
}

// One row has no 45 %.
TEST(DefaultPolicyTest, StatesNoShareThatPlacesNothing) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  Machine machine = MachineWith(1024 * kMiB, int64_t{100} << 30);
  machine.device = Tier::kGpu;
  machine.cap_bytes[Tier::kGpu] = 500 * kMiB;
  const Workload work = WorkOf(256, {1500, 500});
  const Policy policy = DefaultPolicy(MakeModel(shape), machine, work, {}, kNeeds);
  const Plan plan = LayOut(MakeModel(shape), machine, work, policy, kNeeds);
  for (const Tier tier : kAllTiers) {
    EXPECT_EQ(policy.kv_frac[tier] > 0.0, plan.kv[tier].rows > 0);
    EXPECT_EQ(policy.weight_frac[tier] > 0.0, plan.weight_bytes[tier] > 0);
  }
}

std::vector<Machine> Machines() {
  std::vector<Machine> machines;
  for (const int64_t gpu : {0, 96, 600}) {
    for (const int64_t cpu : {40, 110, 180, 400, 1200}) {
      for (const int64_t disk : {0, 150, 700, 100'000}) {
        Machine machine = MachineWith(cpu * kMiB, disk * kMiB);
        if (gpu > 0) machine.device = Tier::kGpu;
        machine.cap_bytes[Tier::kGpu] = gpu * kMiB;
        machines.push_back(machine);
      }
    }
  }
  return machines;
}

// The smallest blocks that leave unchanged what is given, each kind in one tier.
std::vector<Policy> WholeTiers(const GivenPolicy& given, const Machine& machine) {
  std::vector<Policy> policies;
  const auto on = [](Tier tier) {
    PerTier<double> frac;
    frac[tier] = 1.0;
    return frac;
  };
  for (const Tier weights : kAllTiers) {
    for (const Tier kv : kAllTiers) {
      for (const Tier activations : kAllTiers) {
        if (std::min({weights, kv, activations}) < machine.device) continue;
        if (machine.has_gpu() && kv == Tier::kGpu && given.cpu_attention.value_or(false)) continue;
        Policy policy;
        policy.weight_frac = on(weights);
        policy.kv_frac = on(kv);
        policy.activation_frac = on(activations);
        policy.gpu_batch_size = given.gpu_batch_size.value_or(1);
        policy.num_gpu_batches = given.num_gpu_batches.value_or(1);
        policy.prefill_chunk = given.prefill_chunk.value_or(32);
        policy.cpu_attention = given.cpu_attention.value_or(false);
        policy.kv = given.kv.value_or(KvPolicy{});
        policies.push_back(policy);
      }
    }
  }
  return policies;
}

std::vector<GivenPolicy> Shapes() {
  std::vector<GivenPolicy> shapes;
  const auto add = [&](std::optional<int64_t> rows, std::optional<int64_t> batches) {
    shapes.emplace_back();
    shapes.back().gpu_batch_size = rows;
    shapes.back().num_gpu_batches = batches;
  };
  add(std::nullopt, std::nullopt);
  add(std::nullopt, 6);
  add(1, 1);
  add(16, std::nullopt);
  add(16, 12);
  add(192, 1);
  add(192, 2);
  shapes.back().cpu_attention = true;
  add(192, std::nullopt);
  shapes.back().prefill_chunk = 256;
  add(384, 1);
  shapes.back().kv = KvPolicy{};
  shapes.back().kv->kind = KvPolicyKind::kH2o;
  shapes.back().kv->budget = {{0.0, 40}, {}, {}};
  return shapes;
}

// A model of 4 blocks: enough for everything but the time that a test takes.
TEST(DefaultPolicyTest, FitsWhereverAPlacementInWholeTiersFits) {
  ModelShape shape = *BuiltInShape("opt-125m");
  shape.num_layers = 4;
  const Workload work = WorkOf(400, {32, 64});
  int num_possible = 0;
  int num_refused = 0;
  for (const Machine& machine : Machines()) {
    for (const GivenPolicy& given : Shapes()) {
      const bool possible = std::ranges::any_of(WholeTiers(given, machine), [&](const Policy& p) {
        return Fits(LayOut(MakeModel(shape), machine, work, p, kNeeds));
      });
      const Policy chosen = DefaultPolicy(MakeModel(shape), machine, work, given, kNeeds);
      const bool fits = Fits(LayOut(MakeModel(shape), machine, work, chosen, kNeeds));
      SCOPED_TRACE(CaseOf("gpu", machine.cap_bytes[Tier::kGpu], "cpu",
                          machine.cap_bytes[Tier::kCpu], "disk", machine.cap_bytes[Tier::kDisk],
                          "rows", given.gpu_batch_size.value_or(0), "batches",
                          given.num_gpu_batches.value_or(0)));
      EXPECT_TRUE(fits || !possible);
      if (machine.has_gpu() && chosen.cpu_attention) {
        EXPECT_EQ(chosen.kv_frac[Tier::kGpu], 0.0);
      }
      EXPECT_EQ(chosen.gpu_batch_size, given.gpu_batch_size.value_or(chosen.gpu_batch_size));
      EXPECT_EQ(chosen.num_gpu_batches, given.num_gpu_batches.value_or(chosen.num_gpu_batches));
      ++(possible ? num_possible : num_refused);
    }
  }
  EXPECT_GT(num_possible, 100);
  EXPECT_GT(num_refused, 50);
}

}  // namespace
}  // namespace spillway
