#include "src/simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/simulate/sim_links.h"
#include "tests/policies/policy_test_util.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;
using testing::Share;
using testing::T4;

const KernelNeeds kNeeds = {[](int64_t, int64_t, int) { return int64_t{0}; },
                            [](int64_t, int64_t, int) { return int64_t{0}; },
                            [](int64_t, int64_t, int) { return int64_t{0}; }};

struct Published {
  const char* model;
  RequestShape row;
  int64_t batch;
  int64_t num_batches;
  std::array<double, 6> share;  // weights, KV, activations: on gpu and cpu each
  bool cpu_attention;
  double low;  // tokens/s, least and most published
  double high;
};

double FlexGenTokensPerS(const Published& point) {
  Policy policy;
  policy.weight_frac = Share(point.share[0], point.share[1]);
  policy.kv_frac = Share(point.share[2], point.share[3]);
  policy.activation_frac = Share(point.share[4], point.share[5]);
  policy.gpu_batch_size = point.batch;
  policy.num_gpu_batches = point.num_batches;
  policy.cpu_attention = point.cpu_attention;
  policy.prefill_chunk = 1 << 20;
  const Workload work = WorkOf(point.batch * point.num_batches, point.row);
  const Plan plan = LayOut(MakeModel(*BuiltInShape(point.model)), T4(), work, policy, kNeeds);
  SimOptions options;
  options.schedule = SimSchedule::kFlexGen;
  const SimResult result = Simulate(plan, work, options);
  return result.prediction.generated_tokens_per_s;
}

// docs/algorithms.md, "Published numbers"; policies as FlexGen's and H2O's benchmark suites have
// them.
TEST(SimulateAsFlexGen, PredictsWhatWasPublished) {
  constexpr double kTolerance = 0.15;
  constexpr std::array kMostOnCpu = {0.2, 0.8, 0.0, 1.0, 0.0, 1.0};
  for (const Published& point :
       {Published{"opt-30b", {512, 32}, 48, 3, kMostOnCpu, true, 7.32, 8.1},
        Published{"opt-30b", {512, 512}, 40, 2, kMostOnCpu, true, 8.5, 8.5},
        Published{"opt-30b", {512, 1024}, 48, 1, kMostOnCpu, true, 7.1, 7.1},
        Published{"opt-6.7b", {512, 32}, 2, 1, {1.0, 0.0, 1.0, 0.0, 1.0, 0.0}, false, 20.2, 25.3},
        Published{
            "opt-175b", {512, 32}, 32, 8, {0.0, 0.5, 0.0, 0.0, 0.0, 1.0}, true, 0.69, 0.69}}) {
    EXPECT_THAT(FlexGenTokensPerS(point),
                AllOf(Ge((1 - kTolerance) * point.low), Le((1 + kTolerance) * point.high)))
        << point.model << " " << point.row.max_new_tokens;
  }
}

// Calculated by hand: half the link's pace and 0.8 of the compute's while both are at work.
TEST(SimLinks, ComputesAndLinksSlowEachOther) {
  PerLink<SharedPace> paces;
  paces[Link::kDiskRead] = {0.5, 0.8};
  SimLinks links(nullptr, paces, 1.0);
  SimTransfer transfer;
  transfer.bytes[Link::kDiskRead] = 1'000;
  transfer.seconds[Link::kDiskRead] = 1.0;
  const uint64_t number = links.Add(StreamKind::kWeightsIn, transfer);
  links.Compute(1.0);
  EXPECT_NEAR(links.now_s(), 1.25, 1e-9);  // 0.625 s of the transfer are done
  links.WaitFor(StreamKind::kWeightsIn, number);
  EXPECT_NEAR(links.now_s(), 1.625, 1e-9);
  links.Compute(1.0);  // alone
  EXPECT_NEAR(links.now_s(), 2.625, 1e-9);
  EXPECT_EQ(links.totals()[Link::kDiskRead].bytes, 1'000);
  EXPECT_NEAR(links.totals()[Link::kDiskRead].busy_s, 1.625, 1e-9);
}

// Calculated by hand: at half their pace until the write is done, then the rest of the read alone.
TEST(SimLinks, ReadsAndWritesShareADisk) {
  SimLinks links(nullptr, {}, 0.5);
  SimTransfer in;
  in.seconds[Link::kDiskRead] = 3.0;
  SimTransfer out;
  out.seconds[Link::kDiskWrite] = 1.0;
  const uint64_t read = links.Add(StreamKind::kWeightsIn, in);
  const uint64_t write = links.Add(StreamKind::kOut, out);
  links.WaitFor(StreamKind::kOut, write);
  EXPECT_NEAR(links.now_s(), 2.0, 1e-9);
  links.WaitFor(StreamKind::kWeightsIn, read);
  EXPECT_NEAR(links.now_s(), 4.0, 1e-9);
}

// A transfer that ends during a compute slows the rest of it no more.
TEST(SimLinks, AComputeGoesOnAloneOnceTheLinkIsDone) {
  PerLink<SharedPace> paces;
  paces[Link::kCpuToGpu] = {1.0, 0.5};
  SimLinks links(nullptr, paces, 1.0);
  SimTransfer transfer;
  transfer.seconds[Link::kCpuToGpu] = 1.0;
  links.Add(StreamKind::kWeightsIn, transfer);
  links.Compute(2.0);
  EXPECT_NEAR(links.now_s(), 2.5, 1e-9);
}

Plan SpilledPlan(const Workload& work, int64_t rows, int64_t num_batches) {
  Policy policy;
  policy.weight_frac = Share(0.1, 0.6);
  policy.kv_frac = Share(0.2, 0.6);
  policy.activation_frac = Share(0.0, 1.0);
  policy.gpu_batch_size = rows;
  policy.num_gpu_batches = num_batches;
  return LayOut(MakeModel(*BuiltInShape("opt-1.3b")), T4(), work, policy, kNeeds);
}

// H2O with half of KV on disk, which the CPU attends to.
Plan LoggedPlan(const Workload& work, int64_t rows, int64_t num_batches) {
  Policy policy = SpilledPlan(work, rows, num_batches).policy;
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.budget = {{0.2, 0}, {}, {}};
  policy.kv_frac = Share(0.0, 0.5);
  policy.cpu_attention = true;
  return LayOut(MakeModel(*BuiltInShape("opt-1.3b")), T4(), work, policy, kNeeds);
}

// Rows whose KV is all in CPU memory and attended to there; 16 of them in blocks of so many
// batches.
SimResult AttendedByTheCpu(int64_t num_batches) {
  Policy policy;
  policy.weight_frac = policy.activation_frac = Share(1.0, 0.0);
  policy.kv_frac = Share(0.0, 1.0);
  policy.cpu_attention = true;
  policy.gpu_batch_size = 16 / num_batches;
  policy.num_gpu_batches = num_batches;
  const Workload work = WorkOf(16, {16, 400});
  return Simulate(LayOut(MakeModel(*BuiltInShape("opt-1.3b")), T4(), work, policy, kNeeds), work,
                  {});
}

TEST(SimulateBeside, TheCpuAttendsToABatchWhileTheGpuComputesAnother) {
  for (const int64_t num_batches : {1, 2, 4}) {
    const SimResult result = AttendedByTheCpu(num_batches);
    const double cpu_s = result.units[CostUnit::kCpuAttention];
    const double gpu_s = result.units.total_s() - cpu_s;
    EXPECT_GT(std::min(cpu_s, gpu_s), 0.1 * std::max(cpu_s, gpu_s)) << "nothing to overlap";
    // The first batch of a pass begins when the last one before it has ended.
    const double least_s = num_batches == 1 ? cpu_s + gpu_s : std::max(cpu_s, gpu_s);
    EXPECT_THAT(result.prediction.total_s(), AllOf(Ge(0.999 * least_s), Le(1.15 * least_s)))
        << num_batches << " batches: CPU " << cpu_s << " s, GPU " << gpu_s << " s";
  }
}

void ExpectNear(const Trace& a, const Trace& b, double tolerance) {
  EXPECT_EQ(a.num_blocks, b.num_blocks);
  EXPECT_EQ(a.prefill.prompt_tokens, b.prefill.prompt_tokens);
  EXPECT_EQ(a.prefill.passes, b.prefill.passes);
  EXPECT_EQ(a.decode.passes, b.decode.passes);
  EXPECT_EQ(a.decode.generated_tokens, b.decode.generated_tokens);
  EXPECT_NEAR(a.prefill.seconds, b.prefill.seconds, tolerance * b.prefill.seconds);
  EXPECT_NEAR(a.decode.seconds, b.decode.seconds, tolerance * b.decode.seconds);
  for (const Link link : kAllLinks) {
    const auto bytes = static_cast<double>(b.decode.links[link].bytes);
    EXPECT_NEAR(static_cast<double>(a.decode.links[link].bytes), bytes, tolerance * bytes + 1.0)
        << LinkName(link);
  }
}

// A pass that stands for its neighbours stands for what they do.
TEST(Simulate, PassesTakenTogetherTakeAsLong) {
  const Workload work = WorkOf(32, {100, 200});
  const Plan logged = LoggedPlan(work, 8, 4);
  ASSERT_TRUE(logged.kv_log.exists());
  const auto expect_near = [&](const Plan& plan, double tolerance) {
    SimOptions few;
    few.max_cells = 2'000;
    ExpectNear(Simulate(plan, work, few).trace, Simulate(plan, work, {}).trace, tolerance);
  };
  expect_near(SpilledPlan(work, 8, 4), 0.01);
  expect_near(logged, 0.02);  // one pass writes a block more than another whole
}

// The third block and those after it are like the second where rows are alike, else like the
// average.
TEST(Simulate, ManyBlocksAreCountedOn) {
  for (const bool alike : {true, false}) {
    Workload work = WorkOf(8 * 40 + 3, {60, 12});
    for (std::size_t row = 0; row < work.sample.size() && !alike; ++row) {
      work.sample[row] = {20 + static_cast<int64_t>(row % 3) * 20,
                          4 + static_cast<int64_t>(row % 5) * 2};
    }
    const Plan plan = SpilledPlan(work, 4, 2);
    SimOptions every;
    every.walk_all = true;
    const SimResult counted = Simulate(plan, work, {});
    const SimResult walked = Simulate(plan, work, every);
    if (alike) {
      ExpectNear(counted.trace, walked.trace, 0.002);
      continue;
    }
    const double rate = walked.prediction.generated_tokens_per_s;
    EXPECT_NEAR(counted.prediction.generated_tokens_per_s, rate, 0.03 * rate);
  }
}

// Calculated by hand: everything on the GPU, one row, one token: all weights are read once from its
// memory.
TEST(Simulate, OneTokenReadsTheWeightsOnce) {
  Machine machine = T4();
  machine.rates.gpu.launch_s = 0.0;
  const Workload work = WorkOf(1, {1, 1});
  Policy policy;
  policy.weight_frac = policy.kv_frac = policy.activation_frac = Share(1.0, 0.0);
  const Plan plan = LayOut(MakeModel(*BuiltInShape("opt-6.7b")), machine, work, policy, kNeeds);
  const SimResult result = Simulate(plan, work, {});
  int64_t matrix_bytes = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors) {
      const bool looked_up = tensor.spec.name == "decoder.embed_positions.weight";
      if (!tensor.spec.is_vector() && !looked_up) matrix_bytes += tensor.spec.bytes();
    }
  }
  const double read_s = static_cast<double>(matrix_bytes) / machine.rates.gpu.memory_bytes_per_s;
  EXPECT_NEAR(result.trace.prefill.seconds, read_s, 0.01 * read_s);
  EXPECT_EQ(result.trace.decode.passes, 0);
  EXPECT_EQ(result.prediction.bound_by.substr(0, 3), "gpu");
}

// Texts of one token have nothing to score; each is fed once, beside others or alone.
TEST(Simulate, RowsWithoutNewTokensTakeAPass) {
  Workload work = WorkOf(6, {9, 4});
  work.sample[1] = work.sample[4] = {1, 0};
  const Plan plan = LayOut(MakeModel(*BuiltInShape("opt-125m")), T4(), work, Policy(), kNeeds);
  EXPECT_EQ(Simulate(plan, work, {}).trace.prefill.generated_tokens +
                Simulate(plan, work, {}).trace.decode.generated_tokens,
            4 * 4 + 2);
  const Workload nothing = WorkOf(3, {1, 0});
  const Plan alone = LayOut(MakeModel(*BuiltInShape("opt-125m")), T4(), nothing, Policy(), kNeeds);
  EXPECT_EQ(Simulate(alone, nothing, {}).trace.decode.passes, 0);
}

// The link is the bound: a pass of few rows takes as long as its weights' way.
TEST(Simulate, FewRowsWaitForTheirWeights) {
  const Workload work = WorkOf(4, {16, 33});
  Policy policy;
  policy.weight_frac = Share(0.0, 1.0);
  policy.kv_frac = policy.activation_frac = Share(1.0, 0.0);
  policy.gpu_batch_size = 4;
  const Machine machine = T4();
  const Plan plan = LayOut(MakeModel(*BuiltInShape("opt-6.7b")), machine, work, policy, kNeeds);
  const SimResult result = Simulate(plan, work, {});
  const double pass_s = static_cast<double>(plan.weight_bytes[Tier::kCpu]) /
                        machine.rates.link_bytes_per_s[Link::kCpuToGpu];
  EXPECT_NEAR(result.trace.decode.seconds, 32 * pass_s, 0.02 * 32 * pass_s);
  EXPECT_EQ(result.prediction.bound_by, "cpu_to_gpu");
  EXPECT_GT(result.trace.decode.waits.weights_s, 0.8 * result.trace.decode.seconds);
}

// Requests of `repeats` rounds of these shapes.
Workload Rounds(int64_t repeats, const std::vector<RequestShape>& round) {
  std::vector<RequestShape> rows;
  for (int64_t i = 0; i < repeats; ++i) rows.insert(rows.end(), round.begin(), round.end());
  return WorkOf(std::move(rows));
}

// All on the GPU, batches of `rows` rows.
Plan PlanOnGpu(const Workload& work, int64_t rows, const KvPolicy& kv) {
  Policy policy;
  policy.weight_frac = policy.kv_frac = policy.activation_frac = Share(1.0, 0.0);
  policy.gpu_batch_size = rows;
  policy.kv = kv;
  return LayOut(MakeModel(*BuiltInShape("opt-125m")), T4(), work, policy, kNeeds);
}

// A run sorts by length, not by slots kept: with a budget of 8 tokens all rows keep as much, and
// still two long rows run together, then two short ones.
TEST(SimulateComposes, RowsAreSortedByLengthWhateverTheyKeep) {
  const Workload work = Rounds(2, {{10, 100}, {10, 10}});
  KvPolicy kv;
  kv.kind = KvPolicyKind::kH2o;
  kv.budget.kept = {0.0, 8};
  const Trace trace = Simulate(PlanOnGpu(work, 2, kv), work, {}).trace;
  EXPECT_EQ(trace.num_blocks, 2);
  EXPECT_EQ(trace.prefill.passes, 2);
  EXPECT_EQ(trace.prefill.passes + trace.decode.passes, 100 + 10);
}

// A run gives a row one run of slots: two free halves are no place for a row that is as long as
// both. Four rows of 24 slots come first, of which two that are no neighbours end after 2 passes
// and two after 23. In the places of the first two the next twelve requests take turns. When those
// have ended, two gaps of 24 slots are free, and the last request asks for 48.
TEST(SimulateComposes, ARowNeedsItsSlotsInOneRun) {
  std::vector<RequestShape> rows = {{22, 2}, {1, 23}, {22, 2}, {1, 23}};
  rows.insert(rows.end(), 12, {14, 2});
  rows.push_back({32, 16});
  const Workload work = WorkOf(std::move(rows));
  Plan plan = PlanOnGpu(work, 4, {});
  ASSERT_EQ(plan.kv_classes.size(), 1U);
  plan.batch.slots = plan.kv[Tier::kGpu].size = plan.kv_classes[0].slots[Tier::kGpu] = 4 * 24;
  const Trace trace = Simulate(plan, work, {}).trace;
  EXPECT_EQ(trace.num_blocks, 2);
  EXPECT_EQ(trace.prefill.passes + trace.decode.passes, 23 + 16);
}

// The clock is so late that a step is less than it can tell.
TEST(SimLinks, ALateClockEndsWhatItBegan) {
  SimLinks links({}, {}, 1.0);
  links.Compute(1e9);
  links.Add(StreamKind::kWeightsIn,
            {.bytes = {}, .seconds = {{1.0, 0.0, 0.0, 0.0}}, .label = {}, .after = 0});
  for (int i = 0; i < 100; ++i) links.Compute(3e-12);
  links.WaitForAll();
  EXPECT_NEAR(links.now_s(), 1e9 + 1.0, 1e-3);
}

}  // namespace
}  // namespace spillway
