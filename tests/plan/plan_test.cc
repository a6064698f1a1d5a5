#include "spillway/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "policies/default_policy.h"
#include "spillway/error.h"
#include "spillway/reference_prompt.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

const KernelNeeds kNeeds = {
    [](int64_t rows, int64_t in, int) { return rows * in * 6; },
    [](int64_t slots, int64_t head_dim, int threads) { return slots * head_dim * threads; },
    [](int64_t slots, int64_t head_dim, int threads) { return 2 * slots * head_dim * threads; }};

Machine MachineWith(int64_t cpu_bytes) {
  Machine machine;
  machine.num_threads = 2;
  machine.cap_bytes[Tier::kCpu] = cpu_bytes;
  return machine;
}

Workload Requests(int64_t count, int64_t prompt, int64_t max_new) {
  Workload work;
  work.num_requests = count;
  work.sample.assign(static_cast<std::size_t>(count), {prompt, max_new});
  work.longest = {prompt, max_new};
  return work;
}

Policy Batches(int64_t rows, int64_t batches) {
  Policy policy;
  policy.weight_frac[Tier::kCpu] = policy.kv_frac[Tier::kCpu] = policy.activation_frac[Tier::kCpu] =
      1.0;
  policy.gpu_batch_size = rows;
  policy.num_gpu_batches = batches;
  return policy;
}

// Begin and end of every region that is in use at the same time as all the others.
std::map<int64_t, int64_t> DisjointRegions(const Plan& plan) {
  std::map<int64_t, int64_t> regions;
  const auto add = [&](const Region& region) {
    regions[region.offset] = region.offset + region.bytes;
  };
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors)
      add({tensor.tiles[0].offset, tensor.spec.bytes()});
  }
  add(plan.kv[Tier::kCpu].region);
  add(plan.hidden[Tier::kCpu].region);
  add(plan.workspace.normed);
  add(plan.workspace.matmul);
  add(plan.workspace.attention);
  add(plan.workspace.qkv);
  add(plan.workspace.attended);
  return regions;
}

TEST(PlanTest, RegionsAreAlignedDisjointAndInsideTheArena) {
  for (const char* name : {"opt-125m", "opt-350m", "opt-1.3b"}) {
    const Plan plan = MakePlan(*BuiltInShape(name), MachineWith(int64_t{1} << 40),
                               Requests(20, 100, 28), Batches(4, 3), kNeeds);
    int64_t end = 0;
    for (const auto& [begin, region_end] : DisjointRegions(plan)) {
      EXPECT_EQ(begin % 64, 0);
      EXPECT_GE(begin, end);
      end = region_end;
    }
    EXPECT_LE(end, plan.arena_bytes[Tier::kCpu]);
    for (const Region& region :
         {plan.workspace.ffn, plan.workspace.embedded, plan.workspace.logits}) {
      EXPECT_LE(region.offset + region.bytes, plan.arena_bytes[Tier::kCpu]);
      EXPECT_GE(region.offset, plan.workspace.attention.offset + plan.workspace.attention.bytes);
    }
  }
}

TEST(PlanTest, KvHoldsTheLongestRowsOfABatch) {
  Workload work = Requests(3, 10, 6);
  work.sample = {{10, 6}, {100, 28}, {50, 14}};
  work.longest = {100, 28};
  const Plan plan = MakePlan(*BuiltInShape("opt-125m"), MachineWith(int64_t{1} << 40), work,
                             Batches(2, 1), kNeeds);
  EXPECT_EQ(plan.slot_bytes, 2 * 768 * 2);
  EXPECT_EQ(plan.batch.rows, 2);
  EXPECT_EQ(plan.batch.slots, 128 + 64);
  EXPECT_EQ(plan.batch.prompt_tokens, 150);
  EXPECT_EQ(plan.kv[Tier::kCpu].region.bytes, 192 * 3072 * 12);
}

// opt-125m: 12 heads of 64; opt-2.7b: 32 of 80, whose second group has 16 elements.
TEST(PlanTest, CodesOfKvAndTheirRangesAreSized) {
  const Workload work = Requests(4, 100, 28);
  for (const auto& [name, bits, token_bytes] : {std::tuple{"opt-125m", 8, 64 + 4},
                                                {"opt-125m", 4, 32 + 4},
                                                {"opt-2.7b", 8, 80 + 8},
                                                {"opt-2.7b", 4, 40 + 8}}) {
    const ModelShape shape = *BuiltInShape(name);
    Policy policy = Batches(2, 1);
    policy.kv_bits = bits;
    const Plan full = MakePlan(shape, MachineWith(int64_t{1} << 40), work, policy, kNeeds);
    EXPECT_EQ(full.slot_bytes, 2 * shape.num_heads * token_bytes);
    EXPECT_EQ(full.kv[Tier::kCpu].region.bytes, 2 * 128 * full.slot_bytes * shape.num_layers);
    EXPECT_EQ(full.KvBytes(), full.kv[Tier::kCpu].region.bytes);
    EXPECT_EQ(full.table_bytes, ReferenceBytesOf(shape).total());
    policy.kv.kind = KvPolicyKind::kH2o;
    policy.kv.budget = {{0.0, 31}, {}, {}};
    const Plan h2o = MakePlan(shape, MachineWith(int64_t{1} << 40), work, policy, kNeeds);
    EXPECT_EQ(h2o.slot_bytes, full.slot_bytes + 8 * shape.num_heads);
    EXPECT_EQ(h2o.kv[Tier::kCpu].region.bytes, 2 * 32 * h2o.slot_bytes * shape.num_layers);
    EXPECT_EQ(h2o.workspace.prompt.kv.bytes, h2o.workspace.prompt.slots() * full.slot_bytes);
    EXPECT_EQ(full.KvBlockBytes() % 64, 0);
  }
}

TEST(PlanTest, CodesOnDiskTakeWholeDiskBlocks) {
  Policy policy = Batches(2, 1);
  policy.kv_bits = 4;
  policy.kv_frac = {};
  policy.kv_frac[Tier::kDisk] = 1.0;
  const Plan plan = LayOut(*BuiltInShape("opt-2.7b"), MachineWith(int64_t{1} << 40),
                           Requests(4, 100, 28), policy, kNeeds);
  EXPECT_EQ(plan.KvBlockBytes() % 4096, 0);
  EXPECT_EQ(plan.RowSlots(0, 128) % plan.slot_align, 0);
}

TEST(PlanTest, ARowBeyondTheSampleFitsAlone) {
  Workload work = Requests(3, 10, 6);
  work.num_requests = 1000;
  work.longest = {2000, 48};
  const Plan plan = MakePlan(*BuiltInShape("opt-125m"), MachineWith(int64_t{1} << 40), work,
                             Batches(2, 1), kNeeds);
  EXPECT_EQ(plan.batch.slots, 2048);
  EXPECT_EQ(plan.batch.prompt_tokens, 2000);
}

TEST(PlanTest, ABlockHasNoMoreBatchesThanTheWorkloadFills) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Machine machine = MachineWith(int64_t{1} << 40);
  EXPECT_EQ(MakePlan(shape, machine, Requests(10, 8, 8), Batches(4, 7), kNeeds).num_batches, 3);
  EXPECT_EQ(MakePlan(shape, machine, Requests(10, 8, 8), Batches(4, 2), kNeeds).num_batches, 2);
  EXPECT_EQ(MakePlan(shape, machine, Requests(0, 0, 0), Batches(4, 2), kNeeds).num_batches, 1);
}

TEST(PlanTest, RefusalNamesNeededAvailableAndAChangeThatFits) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = Requests(512, 1000, 1000);
  try {
    MakePlan(shape, MachineWith(int64_t{2} << 30), work, Batches(256, 1), kNeeds);
    FAIL() << "a plan over the cap was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCpuMemory);
    EXPECT_THAT(error.what(), HasSubstr("2.00 GiB available"));
    EXPECT_THAT(error.what(), HasSubstr("--gpu-batch-size 16 --num-gpu-batches 1 fits"));
    EXPECT_LE(ErrorLine(error.code(), error.what()).size(), 300U);
  }
  MakePlan(shape, MachineWith(int64_t{2} << 30), work, Batches(16, 1), kNeeds);
}

TEST(PlanTest, RefusalOfWeightsNamesTheMemoryThatWouldDo) {
  try {
    MakePlan(*BuiltInShape("opt-1.3b"), MachineWith(int64_t{1} << 30), Requests(1, 8, 8),
             Batches(1, 1), kNeeds);
    FAIL() << "a plan over the cap was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("give --cpu-memory"));
  }
}

TEST(DefaultPolicyTest, ShrinksTheBatchUntilItFits) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = Requests(512, 1000, 1000);
  const Policy roomy = DefaultPolicy(shape, MachineWith(int64_t{1} << 40), work, {}, kNeeds);
  EXPECT_EQ(roomy.gpu_batch_size, 64);
  const Machine tight = MachineWith(int64_t{2} << 30);
  const Policy small = DefaultPolicy(shape, tight, work, {}, kNeeds);
  EXPECT_LT(small.gpu_batch_size, 64);
  EXPECT_GE(small.gpu_batch_size, 16);
  EXPECT_TRUE(Fits(LayOut(shape, tight, work, small, kNeeds)));
}

TEST(DefaultPolicyTest, KeepsOneBatchWhereAllIsInPlace) {
  GivenPolicy given;
  given.gpu_batch_size = 2;
  const Policy policy = DefaultPolicy(*BuiltInShape("opt-125m"), MachineWith(int64_t{8} << 30),
                                      Requests(512, 100, 100), given, kNeeds);
  EXPECT_EQ(policy.num_gpu_batches, 1);
  EXPECT_EQ(policy.weight_frac[Tier::kCpu], 1.0);
}

// Weights leave for a block that pays, and come back as far as there is room.
TEST(DefaultPolicyTest, SpillsWeightsForALargeBlock) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  Machine machine = MachineWith(int64_t{2} << 30);
  machine.cap_bytes[Tier::kDisk] = int64_t{100} << 30;
  const Workload work = Requests(256, 32, 64);
  const Policy policy = DefaultPolicy(shape, machine, work, {}, kNeeds);
  EXPECT_GT(policy.weight_frac[Tier::kDisk], 0.0);
  EXPECT_GE(policy.gpu_batch_size * policy.num_gpu_batches, 64);
  EXPECT_TRUE(Fits(LayOut(shape, machine, work, policy, kNeeds)));
}

TEST(DefaultPolicyTest, NeverChangesWhatWasGiven) {
  GivenPolicy given;
  given.gpu_batch_size = 256;
  given.num_gpu_batches = 2;
  given.prefill_chunk = 64;
  const Policy policy = DefaultPolicy(*BuiltInShape("opt-125m"), MachineWith(int64_t{2} << 30),
                                      Requests(512, 1000, 1000), given, kNeeds);
  EXPECT_EQ(policy.gpu_batch_size, 256);
  EXPECT_EQ(policy.num_gpu_batches, 2);
  EXPECT_EQ(policy.prefill_chunk, 64);
}

}  // namespace
}  // namespace spillway
