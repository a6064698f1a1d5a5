// Refusals of MakePlan: each names what is needed, what there is, and a change that fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "policies/search/default_policy.h"
#include "spillway/error.h"
#include "spillway/plan.h"
#include "tests/plan/plan_test_util.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

TEST(PlanRefusalTest, NamesNeededAvailableAndAChangeThatFits) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = WorkOf(512, {1000, 1000});
  try {
    MakePlan(MakeModel(shape), MachineWith(int64_t{2} << 30), work, Batches(256, 1), kNeeds);
    FAIL() << "a plan over the cap was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCpuMemory);
    EXPECT_THAT(error.what(), HasSubstr("2.00 GiB available"));
    EXPECT_THAT(error.what(), HasSubstr("--gpu-batch-size 16 --num-gpu-batches 1 fits"));
    EXPECT_LE(ErrorLine(error.code(), error.what()).size(), 300U);
  }
  MakePlan(MakeModel(shape), MachineWith(int64_t{2} << 30), work, Batches(16, 1), kNeeds);
}

// Returns the message that MakePlan refuses with.
std::string RefusalOf(const ModelShape& shape, const Machine& machine, const Workload& work,
                      const Policy& policy) {
  try {
    MakePlan(MakeModel(shape), machine, work, policy, kNeeds);
  } catch (const Error& error) {
    EXPECT_LE(ErrorLine(error.code(), error.what()).size(), 300U);
    return error.what();
  }
  return "a plan over the cap was accepted";
}

TEST(PlanRefusalTest, OfWeightsNamesTheMemoryThatWouldDo) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  const std::string refusal =
      RefusalOf(shape, MachineWith(int64_t{1} << 30), WorkOf(1, {8, 8}), Batches(1, 1));
  const std::string named = "give at least --cpu-memory ";
  ASSERT_THAT(refusal, HasSubstr(named));
  const int64_t mib = std::stoll(refusal.substr(refusal.find(named) + named.size()));
  MakePlan(MakeModel(shape), MachineWith(mib << 20), WorkOf(1, {8, 8}), Batches(1, 1), kNeeds);
  EXPECT_THROW(MakePlan(MakeModel(shape), MachineWith((mib - 1) << 20), WorkOf(1, {8, 8}),
                        Batches(1, 1), kNeeds),
               Error);
}

TEST(PlanRefusalTest, NamesEveryCapThatIsTooSmallByItsFlags) {
  Machine machine = MachineWith(1 << 20, 1 << 20);
  machine.device = Tier::kGpu;
  machine.cap_bytes[Tier::kGpu] = 1 << 20;
  Policy policy = Batches(1, 1);
  policy.weight_frac = {{0.3, 0.3, 0.4}};
  const ModelShape shape = *BuiltInShape("opt-175b");
  const Workload work = WorkOf(1, {8, 8});
  const Plan plan = LayOut(MakeModel(shape), machine, work, policy, kNeeds);
  const auto mib = [](int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20); };
  const std::string rest = "MiB and --cpu-memory " + mib(plan.PlannedBytes(Tier::kCpu)) +
                           "MiB and --disk-space " + mib(plan.PlannedBytes(Tier::kDisk)) + "MiB";
  const int64_t gpu_bytes = plan.PlannedBytes(Tier::kGpu);
  EXPECT_THAT(RefusalOf(shape, machine, work, policy),
              HasSubstr("give at least --gpu-memory " + mib(gpu_bytes) + rest));
  machine.gpu_cap_flags = "--emulate-gpu and --gpu-memory";
  EXPECT_THAT(RefusalOf(shape, machine, work, policy),
              HasSubstr("give at least --emulate-gpu and --gpu-memory " + mib(gpu_bytes) + rest));
  machine.gpu_used_bytes = 500 << 20;
  EXPECT_THAT(RefusalOf(shape, machine, work, policy),
              HasSubstr("--gpu-memory " + mib(gpu_bytes + machine.gpu_used_bytes) + rest));
}

// The policy is what is refused, with the flags that are named.
Policy PolicyNamedBy(const std::string& refusal, Policy policy) {
  const auto read = [&](const std::string& flag, int64_t& value) {
    const size_t at = refusal.find(flag + " ", refusal.find("; "));
    if (at != std::string::npos) value = std::stoll(refusal.substr(at + flag.size()));
  };
  read("--gpu-batch-size", policy.gpu_batch_size);
  read("--num-gpu-batches", policy.num_gpu_batches);
  read("--prefill-chunk", policy.prefill_chunk);
  return policy;
}

Policy Chunked(int64_t rows, int64_t prefill_chunk) {
  Policy policy = Batches(rows, 1);
  policy.prefill_chunk = prefill_chunk;
  return policy;
}

// CPU memory with which the policy just fits.
int64_t BytesOf(const ModelShape& shape, const Workload& work, const Policy& policy) {
  const Machine machine = MachineWith(int64_t{1} << 40);
  return LayOut(MakeModel(shape), machine, work, policy, kNeeds).PlannedBytes(Tier::kCpu);
}

TEST(PlanRefusalTest, OfALongChunkNamesTheLongestPowerOfTwoThatFits) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = WorkOf(16, {1000, 8});
  const int64_t cap = BytesOf(shape, work, Chunked(16, 256));
  const Policy policy = Chunked(16, 5000);
  const std::string refusal = RefusalOf(shape, MachineWith(cap), work, policy);
  EXPECT_THAT(refusal, testing::EndsWith("; --prefill-chunk 256 fits"));
  MakePlan(MakeModel(shape), MachineWith(cap), work, PolicyNamedBy(refusal, policy), kNeeds);
  // The block shrinks where no chunk is small enough.
  EXPECT_THAT(RefusalOf(shape, MachineWith(cap - (64 << 20)), work, policy),
              HasSubstr("--gpu-batch-size"));
}

TEST(PlanRefusalTest, OfALongChunkNamesAChunkAndABlockWhereNeitherWouldDoAlone) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = WorkOf(16, {1000, 8});
  const int64_t cap = BytesOf(shape, work, Chunked(1, 64));
  const Policy policy = Chunked(16, 4000);
  const std::string refusal = RefusalOf(shape, MachineWith(cap), work, policy);
  EXPECT_THAT(refusal, testing::EndsWith(
                           "; --gpu-batch-size 1 --num-gpu-batches 1 --prefill-chunk 64 fits"));
  MakePlan(MakeModel(shape), MachineWith(cap), work, PolicyNamedBy(refusal, policy), kNeeds);
}

// Beside the weights the disk has room for the KV of 128 rows, not for that of 256.
TEST(PlanRefusalTest, OfAChosenPlacementNamesABlockThatFitsWithAnother) {
  Machine machine = MachineWith(int64_t{32} << 30, int64_t{200} << 30);
  machine.device = Tier::kGpu;
  machine.cap_bytes[Tier::kGpu] = int64_t{16} << 30;
  const ModelShape shape = *BuiltInShape("opt-30b");
  const Workload work = WorkOf(10'000, {512, 32});
  Policy refused = Batches(64, 8);
  refused.kv_frac = {};
  refused.kv_frac[Tier::kDisk] = 1.0;
  EXPECT_THAT(RefusalOf(shape, machine, work, refused), HasSubstr("give at least --cpu-memory"));
  refused.placement_is_stated = false;
  EXPECT_THAT(RefusalOf(shape, machine, work, refused),
              HasSubstr("--gpu-batch-size 64 --num-gpu-batches 2 fits"));
  GivenPolicy given;
  given.gpu_batch_size = 64;
  given.num_gpu_batches = 2;
  const Policy chosen = DefaultPolicy(MakeModel(shape), machine, work, given, kNeeds);
  EXPECT_TRUE(Fits(LayOut(MakeModel(shape), machine, work, chosen, kNeeds)));
}

}  // namespace
}  // namespace spillway
