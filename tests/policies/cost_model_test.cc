// The cost model's equations against numbers worked out by hand.
#include "policies/cost/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "policies/cost/compute_seconds.h"
#include "spillway/model.h"
#include "spillway/plan.h"
#include "spillway/tier.h"
#include "tests/plan/plan_test_util.h"
#include "tests/trace_case.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

// Products of 1 row at 2e9 and of 9 rows at 10e9 operations per second.
DeviceRates Rates() {
  DeviceRates rates;
  rates.memory_bytes_per_s = 1e12;
  rates.matmul = {{1, 2e9, 0.0}, {9, 10e9, 0.0}};
  rates.prefill_attention_flops_per_s = 1e9;
  rates.decode_attention_bytes_per_s = 1e9;
  return rates;
}

double SecondsOf(const DeviceRates& rates, const ProductSize& size) {
  return ProductSeconds(rates, size).total_s();
}

TEST(CostModel, ProductsTakeWhatIsMeasuredOfSoManyRows) {
  EXPECT_DOUBLE_EQ(SecondsOf(Rates(), {1, 1'000'000}), 1e-3);    // 2e6 operations
  EXPECT_DOUBLE_EQ(SecondsOf(Rates(), {9, 1'000'000}), 1.8e-3);  // 18e6
}

TEST(CostModel, BetweenTwoMeasurementsTimeIsAStraightLineAndBeyondThemTheRateStays) {
  EXPECT_DOUBLE_EQ(SecondsOf(Rates(), {5, 1'000'000}), 1.4e-3);
  EXPECT_DOUBLE_EQ(SecondsOf(Rates(), {90, 1'000'000}), 18e-3);
}

TEST(CostModel, AProductTakesAtLeastItsWeightsWayFromMemory) {
  DeviceRates rates = Rates();
  rates.memory_bytes_per_s = 1e9;
  const UnitSeconds read = ProductSeconds(rates, {1, 1'000'000, 2'000'000});
  EXPECT_DOUBLE_EQ(read[CostUnit::kMemory], 2e-3);
  EXPECT_EQ(read[CostUnit::kMatmul], 0.0);
  const UnitSeconds multiplied = ProductSeconds(rates, {1, 1'000'000, 500'000});
  EXPECT_DOUBLE_EQ(multiplied[CostUnit::kMatmul], 1e-3);
  EXPECT_EQ(multiplied[CostUnit::kMemory], 0.0);
}

// A square matrix of either width takes as long as it was measured to.
TEST(CostModel, EdgesMakeUpForNarrowMatrices) {
  DeviceRates rates = Rates();
  rates.matmul[0].narrow_flops_per_s = 1e9;
  EXPECT_DOUBLE_EQ(SecondsOf(rates, {1, 4096 * 4096, 0, 4096.0}), 2.0 * 4096 * 4096 / 2e9);
  EXPECT_DOUBLE_EQ(SecondsOf(rates, {1, 1024 * 1024, 0, 1024.0}), 2.0 * 1024 * 1024 / 1e9);
}

// A GPU's product takes its kernels' time to begin and end, however wide its matrix is.
TEST(CostModel, ProductsOfAGpuHaveAnOverheadEach) {
  DeviceRates rates = Rates();
  rates.matmul[0].narrow_flops_per_s = 1e9;
  const auto seconds = [&](int64_t elements, int64_t num_products) {
    return SecondsOf(
        rates, {1, elements, 0, 0.0, DType::kF16, ProductOverhead::kPerProduct, num_products});
  };
  const double wide_s = 2.0 * 4096 * 4096 / 2e9;
  const double narrow_s = 2.0 * 1024 * 1024 / 1e9;
  EXPECT_DOUBLE_EQ(seconds(4096 * 4096, 1), wide_s);
  EXPECT_DOUBLE_EQ(seconds(1024 * 1024, 1), narrow_s);
  const double element_s = (wide_s - narrow_s) / (4096 * 4096 - 1024 * 1024);
  EXPECT_DOUBLE_EQ(seconds(4096 * 4096, 3), wide_s + 2.0 * (narrow_s - element_s * 1024 * 1024));
}

TEST(CostModel, QuantisedWeightsAreMultipliedAtTheirOwnRates) {
  DeviceRates rates = Rates();
  rates.matmul_codes[DType::kQ4] = {{1, 8e9, 0.0}};
  EXPECT_DOUBLE_EQ(SecondsOf(rates, {1, 1'000'000, 0, 0.0, DType::kQ4}), 0.25e-3);
  EXPECT_DOUBLE_EQ(SecondsOf(rates, {1, 1'000'000, 0, 0.0, DType::kQ8}), 1e-3);  // not known
  EXPECT_DOUBLE_EQ(SecondsOf(rates, {1, 1'000'000, 0, 0.0, DType::kMxfp4}), 0.25e-3);
  rates.matmul_codes[DType::kMxfp4] = {{1, 4e9, 0.0}};
  EXPECT_DOUBLE_EQ(SecondsOf(rates, {1, 1'000'000, 0, 0.0, DType::kMxfp4}), 0.5e-3);
}

TEST(CostModel, CodesWithoutRatesHaveThoseOfTheNearest) {
  DeviceRates rates = Rates();
  const auto seconds = [&](DType type) { return SecondsOf(rates, {1, 1'000'000, 0, 0.0, type}); };
  rates.matmul_codes = {{DType::kQ4, {{1, 8e9, 0.0}}}, {DType::kMxfp4, {{1, 4e9, 0.0}}}};
  EXPECT_DOUBLE_EQ(seconds(DType::kInt4), 0.25e-3);
  EXPECT_DOUBLE_EQ(seconds(DType::kInt8), 1e-3);  // none of 8 bits
  for (const DType type : {DType::kFp8, DType::kGgufQ8, DType::kGgufQ4, DType::kGgufM4,
                           DType::kGgufK4, DType::kGgufK6}) {
    EXPECT_DOUBLE_EQ(seconds(type), 0.5e-3) << DTypeName(type);
    rates.matmul_codes[type] = {{1, 16e9, 0.0}};
    EXPECT_DOUBLE_EQ(seconds(type), 0.125e-3) << DTypeName(type);
  }
  rates.matmul_codes = {{DType::kQ8, {{1, 4e9, 0.0}}}};
  EXPECT_DOUBLE_EQ(seconds(DType::kGgufQ8), 0.5e-3);
  EXPECT_DOUBLE_EQ(seconds(DType::kGgufK6), 1e-3);
}

TEST(CostModel, QuantisedWeightsHaveTheEdgesOfOthers) {
  DeviceRates rates = Rates();
  rates.matmul[0].narrow_flops_per_s = 1e9;
  rates.matmul_codes[DType::kQ8] = {{1, 4e9, 0.0}};
  EXPECT_DOUBLE_EQ(SecondsOf(rates, {1, 4096 * 4096, 0, 4096.0, DType::kQ8}),
                   2.0 * 4096 * 4096 / 4e9);
  const double more_s = 2.0 * 1024 * 1024 * (1.0 / 1e9 - 1.0 / 2e9);  // as of 16 bits
  EXPECT_NEAR(SecondsOf(rates, {1, 1024 * 1024, 0, 1024.0, DType::kQ8}),
              2.0 * 1024 * 1024 / 4e9 + more_s, 1e-9);
}

// Traffic on the links beside it counts as far as there is any, and no further than the links
// can.
TEST(CostModel, CpuAttentionSharesTheMemoryWithTheLinks) {
  Machine machine = MachineWith(int64_t{1} << 40);
  machine.device = Tier::kGpu;
  machine.cap_bytes[Tier::kGpu] = int64_t{1} << 40;
  machine.rates.cpu = machine.rates.gpu = Rates();
  machine.rates.cpu.memory_bytes_per_s = 1e9;
  machine.rates.cpu.decode_attention_bytes_per_s = 0.8e9;
  machine.rates.link_bytes_per_s[Link::kCpuToGpu] = 0.5e9;
  Policy policy;
  policy.weight_frac = policy.kv_frac = policy.activation_frac = PerTier<double>{};
  for (PerTier<double>* frac : {&policy.weight_frac, &policy.kv_frac, &policy.activation_frac})
    (*frac)[Tier::kCpu] = 1.0;
  policy.cpu_attention = true;
  const Plan plan =
      LayOut(MakeModel(*BuiltInShape("opt-125m")), machine, WorkOf(1, {99, 2}), policy, kNeeds);
  PerTier<KvLoad> kv;
  kv[Tier::kCpu].attended_slots = 100;
  const int64_t bytes = 100 * plan.slot_bytes;
  const auto seconds = [&](int64_t traffic_bytes) {
    return CpuAttentionSeconds(plan, RatesOf(machine), kv, traffic_bytes) * 1e9 /
           static_cast<double>(bytes);
  };
  EXPECT_DOUBLE_EQ(seconds(0), 1.25);  // the cores
  EXPECT_DOUBLE_EQ(seconds(bytes / 2), 1.5);
  EXPECT_DOUBLE_EQ(seconds(bytes), 2.0);
  EXPECT_DOUBLE_EQ(seconds(100 * bytes), 2.0);  // half of the memory's rate is left
}

// Seconds of attention of one row that attends to 100 tokens, with a cache of so many bits.
double AttentionSeconds(const Machine& machine, int kv_bits) {
  Policy policy;
  policy.weight_frac = policy.kv_frac = policy.activation_frac = PerTier<double>{};
  for (PerTier<double>* frac : {&policy.weight_frac, &policy.kv_frac, &policy.activation_frac})
    (*frac)[machine.device] = 1.0;
  policy.kv_bits = kv_bits;
  const Plan plan =
      LayOut(MakeModel(*BuiltInShape("opt-125m")), machine, WorkOf(1, {99, 2}), policy, kNeeds);
  BatchLoad load;
  load.rows = load.tokens = 1;
  load.kv.resize(1);
  load.kv[0][machine.device].attended_slots = 100;
  const UnitSeconds seconds = CostModel(plan, RatesOf(machine)).Compute(1, load);
  return seconds[CostUnit::kAttention] + seconds[CostUnit::kCpuAttention];
}

TEST(CostModel, CodesSlowDownTheCpusAttentionOnAnEmulatedGpuToo) {
  Machine machine = MachineWith(int64_t{1} << 40);
  machine.cap_bytes[Tier::kGpu] = int64_t{1} << 40;
  machine.rates.cpu = Rates();
  double ratio[2] = {};
  for (const Tier device : {Tier::kCpu, Tier::kGpu}) {
    machine.device = device;
    // Bytes shrink by more than the rate.
    ratio[device == Tier::kGpu] = AttentionSeconds(machine, 4) / AttentionSeconds(machine, 16);
    EXPECT_LT(ratio[device == Tier::kGpu], 1.0);
  }
  EXPECT_DOUBLE_EQ(ratio[0], ratio[1]);
}

// Seconds that one token's states take in each layer of a model of 1 layer.
std::vector<double> StatesSeconds(const ModelShape& shape) {
  Machine machine = MachineWith(int64_t{1} << 40);
  machine.rates.cpu = Rates();
  machine.rates.cpu.norm_elements_per_s = 1e9;
  Policy policy;
  policy.weight_frac = policy.kv_frac = policy.activation_frac = PerTier<double>{};
  for (PerTier<double>* frac : {&policy.weight_frac, &policy.kv_frac, &policy.activation_frac})
    (*frac)[Tier::kCpu] = 1.0;
  const Plan plan = LayOut(MakeModel(shape), machine, WorkOf(1, {9, 2}), policy, kNeeds);
  const CostModel model(plan, RatesOf(machine));
  BatchLoad load;
  load.rows = load.tokens = 1;
  load.kv.resize(1);
  std::vector<double> seconds;
  for (int64_t layer = 0; layer < std::ssize(plan.layers); ++layer)
    seconds.push_back(model.Compute(layer, load)[CostUnit::kStates]);
  return seconds;
}

// Two of eight experts for a token, of two batches of a row each.
TEST(CostModel, ExpertsCountAsOftenAsTheyAreExpectedToBeChosen) {
  ModelShape shape = *BuiltInShape("mixtral-8x7b");
  shape.num_layers = 1;
  Machine machine = MachineWith(1);
  machine.rates.cpu = Rates();
  Policy policy = Batches(1, 2);
  policy.weight_frac[Tier::kCpu] = 0.0;
  policy.weight_frac[Tier::kDisk] = 1.0;
  const Plan plan = LayOut(MakeModel(shape), machine, WorkOf(2, {1, 9}), policy, kNeeds);
  const CostModel model(plan, RatesOf(machine));
  BatchLoad load;
  load.rows = load.tokens = 1;
  load.kv.resize(1);
  const auto bytes = [&](int64_t layer) {
    return model.Bytes({TaskKind::kLoadWeights, {0, layer, 0}}, load)[Link::kDiskRead];
  };
  // Layers 3 and 4 are loaded before the router's, which is layer 2, has run.
  EXPECT_EQ(bytes(3), bytes(4));
  EXPECT_EQ(bytes(5), std::llround(static_cast<double>(bytes(3)) * 0.4375));  // 1 - 0.75^2
  // One of eight is multiplied with one row a quarter of the times.
  const double expert_s = 2.0 * 3 * 4096 * 14336 / 2e9;
  EXPECT_NEAR(model.Compute(5, load)[CostUnit::kMatmul], 0.25 * expert_s, 1e-3 * expert_s);
}

// Norms at 1e9 elements a second; the sums are as many whether a product or a norm adds.
TEST(CostModel, NormsOfBranchesAndOfHeadsAndCapsAreCounted) {
  ModelShape shape = *BuiltInShape("qwen3-0.6b");
  shape.num_layers = 1;
  const std::vector<double> with = StatesSeconds(shape);
  shape.head_norm = false;
  const std::vector<double> without = StatesSeconds(shape);
  EXPECT_NEAR(with[1] - without[1], (16 + 8) * 128 * 1e-9, 1e-15);
  shape.branch_norm = true;
  shape.logit_cap = 30.0;
  const std::vector<double> behind = StatesSeconds(shape);
  for (const std::size_t layer : {1, 2})
    EXPECT_NEAR(behind[layer] - without[layer], 1024 * 1e-9, 1e-15);
  EXPECT_NEAR(behind[3] - without[3], 151936 * 1e-9, 1e-12);
}

// Layers with a window that the row has outgrown, and without one: a step changes one block of
// each, wherever it lies.
TEST(CostModel, AStepStoresOneBlockOfALayerWithoutScores) {
  const Model model = MakeModel(*BuiltInShape("gemma-3-1b"));
  for (const Tier tier : {Tier::kCpu, Tier::kDisk}) {
    Policy policy;
    policy.kv_frac = {};
    policy.kv_frac[tier] = 1.0;
    Machine machine = MachineWith(int64_t{1} << 40, int64_t{1} << 40);
    machine.device = Tier::kGpu;
    machine.cap_bytes[Tier::kGpu] = int64_t{1} << 40;
    const Plan plan = LayOut(model, machine, WorkOf(1, {600, 100}), policy, kNeeds);
    ASSERT_EQ(plan.kv_classes.size(), 2U);
    const RowGroup rows = {{600, 100}, 650, tier, Tier::kGpu, 1};
    const BatchLoad load = LoadOf(plan, std::span(&rows, 1));
    for (const PerTier<KvLoad>& kv : load.kv)
      EXPECT_EQ(kv[tier].stored_slots, plan.slot_align[tier]);
  }
}

// A second look at all pairs is for policies that choose by scores.
TEST(CostModel, APromptsScoresCostOnlyWhereTheyAreUsed) {
  Machine machine = MachineWith(int64_t{1} << 40);
  DeviceRates rates = Rates();
  rates.evicting_prefill_flops_per_s = 0.5 * rates.prefill_attention_flops_per_s;
  const auto seconds_of = [&](KvPolicyKind kind) {
    Policy policy;
    policy.kv = {kind, {{0.5, 0}, {}, {}}, {}, 0};
    for (PerTier<double>* frac : {&policy.weight_frac, &policy.kv_frac, &policy.activation_frac})
      *frac = {{0.0, 1.0, 0.0}};
    const Model model = MakeModel(*BuiltInShape("opt-125m"));
    const Plan plan = LayOut(model, machine, WorkOf(1, {100, 2}), policy, kNeeds);
    return PromptAttentionSeconds(plan, rates, 5050, 100);
  };
  EXPECT_EQ(seconds_of(KvPolicyKind::kWindow), seconds_of(KvPolicyKind::kFull));
  EXPECT_GT(seconds_of(KvPolicyKind::kH2o), seconds_of(KvPolicyKind::kFull));
}

// Mean of a batch's KV in one block, over as many passes as it takes until it is written whole
// again.
double MeanDiskBytes(const Plan& plan, const BatchLoad& load) {
  double bytes = 0.0;
  for (int64_t pass = plan.kv_log.passes; pass < 2 * plan.kv_log.passes; ++pass) {
    const Cursor cell = {pass, 1, 0};
    bytes += static_cast<double>(KvInBytes(plan, cell, load.KvOf(plan, 0))[Link::kDiskRead] +
                                 KvOutBytes(plan, cell, load.KvOf(plan, 0))[Link::kDiskWrite]);
  }
  return bytes / static_cast<double>(plan.kv_log.passes);
}

TEST(CostModel, ALogHasAsManyPassesAsMakeForTheFewestBytes) {
  Policy policy;
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.budget = {{0.2, 0}, {}, {}};
  policy.weight_frac[Tier::kCpu] = policy.activation_frac[Tier::kCpu] = 1.0;
  policy.kv_frac[Tier::kDisk] = 1.0;
  policy.gpu_batch_size = 8;
  for (const int64_t prompt : {32, 510, 1990}) {
    SCOPED_TRACE(CaseOf("prompt", prompt));
    const RequestShape row = {prompt, 100};
    Plan plan = LayOut(MakeModel(*BuiltInShape("opt-1.3b")),
                       MachineWith(int64_t{1} << 40, int64_t{1} << 40),
                       WorkOf(8, {row.prompt_tokens, row.max_new_tokens}), policy, kNeeds);
    const RowGroup rows = {row, prompt + 70, Tier::kDisk, Tier::kCpu, 8};
    const BatchLoad load = LoadOf(plan, std::span(&rows, 1));
    const int64_t chosen = plan.kv_log.passes;
    EXPECT_GT(chosen, 4);
    const double fewest = MeanDiskBytes(plan, load);
    const double whole = static_cast<double>(plan.KvSlots(Tier::kDisk, 0) * plan.slot_bytes);
    EXPECT_NEAR(fewest, whole * (1.0 + 1.0 / static_cast<double>(chosen)) + plan.kv_log.MeanBytes(),
                1e-9 * fewest);
    for (plan.kv_log.passes = 1; plan.kv_log.passes < 64; ++plan.kv_log.passes) {
      EXPECT_GE(MeanDiskBytes(plan, load), fewest) << plan.kv_log.passes << ", not " << chosen;
    }
    plan.kv_log.passes = 1;
    EXPECT_EQ(MeanDiskBytes(plan, load), 2.0 * whole);
  }
}

}  // namespace
}  // namespace spillway
