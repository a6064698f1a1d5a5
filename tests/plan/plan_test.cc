#include "spillway/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "spillway/byte_use.h"
#include "spillway/error.h"
#include "spillway/reference_prompt.h"
#include "spillway/tile.h"
#include "src/plan/place_weights.h"
#include "tests/plan/plan_test_util.h"
#include "tests/trace_case.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

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
  add(plan.workspace.matmul);
  add(plan.workspace.attention);
  for (const Buf buf : {Buf::kNormed, Buf::kQkv, Buf::kAttended}) add(plan.workspace.buffers[buf]);
  return regions;
}

Policy WeightsOnDisk(int64_t rows, int64_t batches) {
  Policy policy = Batches(rows, batches);
  policy.weight_frac = {};
  policy.weight_frac[Tier::kDisk] = 1.0;
  return policy;
}

// A GPU computes a matrix of few pieces fast, and each layer asks the links for the same share.
TEST(PlanTest, ATensorHasOneRunOfRowsInEachTier) {
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  const PerTier<double> frac = {{0.21, 0.5, 0.29}};
  ArenaLayouts arenas;
  const PlacedWeights placed = PlaceWeights(MakeModel(shape), frac, Tier::kGpu, {}, arenas);
  constexpr int64_t kTwoTiles = 2 * (int64_t{2} << 20);
  PerTier<int64_t> held;
  int64_t all = 0;
  for (const PlannedLayer& layer : placed.layers) {
    for (const PlannedTensor& tensor : layer.tensors) {
      SCOPED_TRACE(CaseOf("decoder_layer", layer.decoder_layer, "tensor", tensor.spec.name));
      PerTier<int64_t> runs;
      const WeightTile* before = nullptr;
      for (const WeightTile& tile : tensor.tiles) {
        EXPECT_EQ(tile.row_begin, before == nullptr ? 0 : before->row_end);
        const bool continues = before != nullptr && before->tier == tile.tier;
        runs[tile.tier] += continues && tile.tier == Tier::kDisk ? 0 : 1;
        held[tile.tier] += TileBytes(tensor.spec, tile);
        before = &tile;
      }
      all += tensor.spec.bytes();
      for (const Tier tier : kAllTiers) {
        EXPECT_LE(runs[tier], 1) << TierName(tier);
        const double share = frac[tier] * static_cast<double>(all);
        EXPECT_NEAR(static_cast<double>(held[tier]), share, kTwoTiles) << TierName(tier);
      }
    }
  }
  for (const Tier tier : kAllTiers) EXPECT_EQ(held[tier], placed.bytes[tier]);
}

// Weights of two whole blocks are staged at once in order of blocks, of three layers in that of
// layers.
TEST(PlanTest, GoesByBlockWhereBatchesMoveRowsAndByLayerWhereTheyStay) {
  ModelShape shape = *BuiltInShape("opt-30b");
  shape.vocab_size = 1000;  // or the head is the largest layer
  const Machine machine = MachineWith(int64_t{1} << 40, int64_t{1} << 40);
  const auto plan_of = [&](const Policy& policy) {
    return MakePlan(MakeModel(shape), machine, WorkOf(20, {100, 28}), policy, kNeeds);
  };
  const int64_t attention_bytes = int64_t{4} * 7168 * 7168 * 2;
  const int64_t mlp_bytes = int64_t{2} * 7168 * 28672 * 2;

  const Plan in_place = plan_of(WeightsOnDisk(4, 3));
  EXPECT_EQ(in_place.order, GridOrder::kByLayer);
  EXPECT_GE(in_place.weight_staging.bytes, attention_bytes + 2 * mlp_bytes);

  Policy spilled = WeightsOnDisk(4, 3);
  spilled.kv_frac[Tier::kCpu] = 0.5;
  spilled.kv_frac[Tier::kDisk] = 0.5;
  const Plan moving = plan_of(spilled);
  EXPECT_EQ(moving.order, GridOrder::kByDecoderLayer);
  EXPECT_GE(moving.weight_staging.bytes, 2 * (attention_bytes + mlp_bytes));
  EXPECT_LT(moving.weight_staging.bytes, 1.05 * 2 * (attention_bytes + mlp_bytes));
  EXPECT_GT(moving.weight_staging.bytes, in_place.weight_staging.bytes);

  spilled.num_gpu_batches = 1;
  EXPECT_EQ(plan_of(spilled).order, GridOrder::kByLayer);

  Policy states = WeightsOnDisk(4, 3);
  states.activation_frac = {};
  states.activation_frac[Tier::kDisk] = 1.0;
  EXPECT_EQ(plan_of(states).order, GridOrder::kByDecoderLayer);
}

TEST(PlanTest, RegionsAreAlignedDisjointAndInsideTheArena) {
  for (const char* name : {"opt-125m", "opt-350m", "opt-1.3b"}) {
    SCOPED_TRACE(name);
    const Plan plan = MakePlan(MakeModel(*BuiltInShape(name)), MachineWith(int64_t{1} << 40),
                               WorkOf(20, {100, 28}), Batches(4, 3), kNeeds);
    int64_t end = 0;
    for (const auto& [begin, region_end] : DisjointRegions(plan)) {
      EXPECT_EQ(begin % 64, 0);
      EXPECT_GE(begin, end);
      end = region_end;
    }
    EXPECT_LE(end, plan.arena_bytes[Tier::kCpu]);
    for (const Buf buf : {Buf::kHidden, Buf::kInner, Buf::kEmbedded, Buf::kLogits}) {
      SCOPED_TRACE(CaseOf("buffer", buf));
      const Region& region = plan.workspace.buffers[buf];
      EXPECT_LE(region.offset + region.bytes, plan.arena_bytes[Tier::kCpu]);
      EXPECT_GE(region.offset, plan.workspace.attention.offset + plan.workspace.attention.bytes);
    }
  }
}

// 192 of each prompt's tokens are the prefix; the longest rows have 48 and 8 of their own.
TEST(PlanTest, APrefixIsHeldOnceForAllRows) {
  Workload work = WorkOf({{202, 6}, {220, 28}, {196, 4}});
  work.prefix.assign(192, 7);
  const Model model = MakeModel(*BuiltInShape("opt-125m"));
  const Machine machine = MachineWith(int64_t{1} << 40);
  const Plan plan = MakePlan(model, machine, work, Batches(2, 1), kNeeds);
  EXPECT_EQ(plan.CachePrefix(), 192);
  EXPECT_EQ(plan.batch.slots, 56 + 16);
  EXPECT_EQ(plan.batch.prompt_tokens, 28 + 10);
  EXPECT_EQ(plan.prefix.kv.bytes, 192 * 3072 * 12);
  EXPECT_EQ(plan.prefix.hidden.bytes, 192 * 768 * 4);
  EXPECT_EQ(plan.prefix.scores.bytes, 0);
  std::map<int64_t, int64_t> regions = DisjointRegions(plan);
  for (const Region& region : {plan.prefix.kv, plan.prefix.hidden})
    regions[region.offset] = region.offset + region.bytes;
  int64_t end = 0;
  for (const auto& [begin, region_end] : regions) {
    EXPECT_GE(begin, end);
    end = region_end;
  }
  const auto used = BytesByUse(plan)[Tier::kCpu];
  EXPECT_EQ(used[ByteUse::kKv], plan.kv[Tier::kCpu].region.bytes + plan.prefix.kv.bytes);
}

// Rows keep 20 % of their whole prompts and feed what is their own.
TEST(PlanTest, RowsThatEvictKeepWhatTheyWouldWithoutAPrefix) {
  Workload work = WorkOf(4, {220, 30});
  Policy policy = Batches(2, 1);
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.budget.kept.frac = 0.2;
  const Model model = MakeModel(*BuiltInShape("opt-125m"));
  const Machine machine = MachineWith(int64_t{1} << 40);
  const Plan whole = MakePlan(model, machine, work, policy, kNeeds);
  work.prefix.assign(192, 7);
  const Plan plan = MakePlan(model, machine, work, policy, kNeeds);
  EXPECT_EQ(plan.CachePrefix(), 0);
  EXPECT_EQ(plan.batch.slots, whole.batch.slots);
  EXPECT_EQ(plan.longest.slots(), 250);
  EXPECT_EQ(plan.batch.prompt_tokens, 2 * 28);
  EXPECT_EQ(plan.prefix.scores.bytes, 192 * 12 * 12 * 4);
  EXPECT_GE(plan.workspace.prompt.columns(), plan.workspace.prompt.slots() + 4 * 192);
}

// Rows that feed one token each do not make the prefix go through the layers one by one.
TEST(PlanTest, AChunkIsLongEnoughForThePrefix) {
  Workload work = WorkOf(2, {513, 4});
  work.prefix.assign(512, 7);
  const Plan plan = MakePlan(MakeModel(*BuiltInShape("opt-125m")), MachineWith(int64_t{1} << 40),
                             work, Batches(2, 1), kNeeds);
  EXPECT_EQ(plan.batch.prompt_tokens, 2);
  EXPECT_EQ(plan.workspace.chunk_tokens, 512);
}

// Rows on disk leave so much memory and no more: they hold their prompts themselves.
TEST(PlanTest, APrefixWithoutRoomIsHeldByTheRows) {
  Workload work = WorkOf(4, {700, 30});
  Policy policy = Batches(1, 1);
  policy.kv_frac = AllOn(Tier::kDisk);
  const Model model = MakeModel(*BuiltInShape("opt-125m"));
  Machine machine = MachineWith(int64_t{1} << 40, int64_t{1} << 40);
  const Plan apart = MakePlan(model, machine, work, policy, kNeeds);
  work.prefix.assign(64, 7);
  const Plan held = MakePlan(model, machine, work, policy, kNeeds);
  EXPECT_EQ(held.prefix.num_tokens(), 64);
  machine.cap_bytes[Tier::kCpu] = apart.PlannedBytes(Tier::kCpu);
  const bool is_tight = held.PlannedBytes(Tier::kCpu) > machine.cap_bytes[Tier::kCpu];
  const Plan plan = MakePlan(model, machine, work, policy, kNeeds);
  EXPECT_EQ(plan.prefix.num_tokens(), is_tight ? 0 : 64);
  EXPECT_TRUE(is_tight) << "with other sizes the test shows nothing";
}

// The CPU attends beside a GPU in memory of its own, and some keys turn by their row's length.
TEST(PlanTest, SomePlansHoldNoPrefix) {
  Workload work = WorkOf(4, {220, 30});
  work.prefix.assign(192, 7);
  const Model model = MakeModel(*BuiltInShape("opt-125m"));
  Machine machine = MachineWith(int64_t{1} << 40);
  Policy policy = Batches(2, 1);
  policy.cpu_attention = true;
  EXPECT_TRUE(HoldsPrefix(model, machine, work, policy));
  machine.device = Tier::kGpu;
  EXPECT_FALSE(HoldsPrefix(model, machine, work, policy));
  policy.cpu_attention = false;
  EXPECT_TRUE(HoldsPrefix(model, machine, work, policy));
  ModelShape turning = *BuiltInShape("llama-2-7b");
  turning.rope.scaling.kind = RopeScalingKind::kDynamic;
  EXPECT_FALSE(HoldsPrefix(MakeModel(turning), machine, work, policy));
}

TEST(PlanTest, KvHoldsTheLongestRowsOfABatch) {
  const Workload work = WorkOf({{10, 6}, {100, 28}, {50, 14}});
  const Plan plan = MakePlan(MakeModel(*BuiltInShape("opt-125m")), MachineWith(int64_t{1} << 40),
                             work, Batches(2, 1), kNeeds);
  EXPECT_EQ(plan.slot_bytes, 2 * 768 * 2);
  EXPECT_EQ(plan.batch.rows, 2);
  EXPECT_EQ(plan.batch.slots, 128 + 64);
  EXPECT_EQ(plan.batch.prompt_tokens, 150);
  EXPECT_EQ(plan.kv[Tier::kCpu].region.bytes, 192 * 3072 * 12);
}

// opt-125m: 12 heads of 64; opt-2.7b: 32 of 80, whose second group has 16 elements.
TEST(PlanTest, CodesOfKvAndTheirRangesAreSized) {
  const Workload work = WorkOf(4, {100, 28});
  for (const auto& [name, bits, token_bytes] : {std::tuple{"opt-125m", 8, 64 + 4},
                                                {"opt-125m", 4, 32 + 4},
                                                {"opt-2.7b", 8, 80 + 8},
                                                {"opt-2.7b", 4, 40 + 8}}) {
    SCOPED_TRACE(CaseOf("model", name, "bits", bits));
    const ModelShape shape = *BuiltInShape(name);
    Policy policy = Batches(2, 1);
    policy.kv_bits = bits;
    const Plan full =
        MakePlan(MakeModel(shape), MachineWith(int64_t{1} << 40), work, policy, kNeeds);
    EXPECT_EQ(full.slot_bytes, 2 * shape.num_heads * token_bytes);
    EXPECT_EQ(full.kv[Tier::kCpu].region.bytes, 2 * 128 * full.slot_bytes * shape.num_layers);
    EXPECT_EQ(full.KvBytes(), full.kv[Tier::kCpu].region.bytes);
    EXPECT_EQ(full.table_bytes, ReferenceBytesOf(shape).total());
    policy.kv.kind = KvPolicyKind::kH2o;
    policy.kv.budget = {{0.0, 31}, {}, {}};
    const Plan h2o =
        MakePlan(MakeModel(shape), MachineWith(int64_t{1} << 40), work, policy, kNeeds);
    EXPECT_EQ(h2o.slot_bytes, KvSlotBytesWithState(shape.num_heads, shape.head_dim, bits));
    EXPECT_GE(h2o.slot_bytes, full.slot_bytes + 8 * shape.num_heads);
    EXPECT_EQ(h2o.kv[Tier::kCpu].region.bytes, 2 * 32 * h2o.slot_bytes * shape.num_layers);
    EXPECT_EQ(h2o.workspace.prompt.kv.bytes, h2o.workspace.prompt.slots() * full.slot_bytes);
    EXPECT_EQ(full.KvBlockBytes(Tier::kCpu) % 64, 0);
  }
}

TEST(PlanTest, CodesOnDiskTakeWholeDiskBlocks) {
  Policy policy = Batches(2, 1);
  policy.kv_bits = 4;
  policy.kv_frac = {};
  policy.kv_frac[Tier::kDisk] = 1.0;
  const Plan plan = LayOut(MakeModel(*BuiltInShape("opt-2.7b")), MachineWith(int64_t{1} << 40),
                           WorkOf(4, {100, 28}), policy, kNeeds);
  EXPECT_EQ(plan.KvBlockBytes(Tier::kDisk) % 4096, 0);
  EXPECT_EQ(plan.RowSlots(Tier::kDisk, 0, 128) % plan.slot_align[Tier::kDisk], 0);
}

TEST(PlanTest, KvThatTheCpuAttendsToNeedsNoBounce) {
  Machine machine = MachineWith(int64_t{1} << 40);
  machine.device = Tier::kGpu;
  Policy policy = Batches(8, 2);
  policy.kv_frac = {};
  policy.kv_frac[Tier::kDisk] = 1.0;
  const ModelShape shape = *BuiltInShape("opt-125m");
  for (const bool cpu_attention : {false, true}) {
    SCOPED_TRACE(CaseOf("cpu_attention", cpu_attention));
    policy.cpu_attention = cpu_attention;
    const Plan plan = LayOut(MakeModel(shape), machine, WorkOf(16, {100, 28}), policy, kNeeds);
    EXPECT_EQ(plan.bounce.rows_in.num_chunks == 0, cpu_attention);
    EXPECT_EQ(plan.bounce.rows_out.num_chunks == 0, cpu_attention);
    EXPECT_EQ(plan.bounce.weights_in.num_chunks, 0);
    for (const Region& slot : plan.kv_staging.slots) EXPECT_EQ(slot.offset % 4096, 0);
  }
}

TEST(PlanTest, WeightsOnDiskBounceByThemselves) {
  Machine machine = MachineWith(int64_t{1} << 40);
  machine.device = Tier::kGpu;
  const ModelShape shape = *BuiltInShape("opt-125m");
  const BouncePlan bounce =
      LayOut(MakeModel(shape), machine, WorkOf(16, {100, 28}), WeightsOnDisk(8, 2), kNeeds).bounce;
  EXPECT_GT(bounce.weights_in.num_chunks, 0);
  EXPECT_GE(bounce.weights_in.region.bytes, bounce.weights_in.num_chunks * kRunBytes);
  EXPECT_EQ(bounce.rows_in.region.bytes, 0);
  EXPECT_EQ(bounce.rows_out.region.bytes, 0);
}

// Eight slots of opt-125m, with scores and positions, are 6.19 pages of the disk: there a row's
// slots are a multiple of 128, in memory of 8 all the same.
TEST(PlanTest, RowsInMemoryAreNotPaddedForThoseOnDisk) {
  Policy policy = Batches(8, 1);
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.budget = {{0.2, 0}, {}, {}};
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Workload work = WorkOf(8, {512, 32});
  const Plan in_memory = LayOut(MakeModel(shape), MachineWith(0), work, policy, kNeeds);
  policy.kv_frac[Tier::kCpu] = policy.kv_frac[Tier::kDisk] = 0.5;
  const Plan mixed = LayOut(MakeModel(shape), MachineWith(0), work, policy, kNeeds);
  EXPECT_EQ(mixed.RowSlots(Tier::kCpu, 0, 544), 112);  // 109 tokens and the newest
  EXPECT_EQ(mixed.RowSlots(Tier::kDisk, 0, 544), 128);
  EXPECT_EQ(mixed.MostHeadSlots(544), 128);
  EXPECT_EQ(in_memory.MostHeadSlots(544), 112);
  EXPECT_EQ(2 * mixed.kv[Tier::kCpu].region.bytes, in_memory.kv[Tier::kCpu].region.bytes);
}

// Rows of which one length alone fills its blocks' pages: the others decide too.
TEST(PlanTest, RowsOfAllLengthsDecideHowBlocksLieOnDisk) {
  Policy policy = Batches(12, 1);
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.budget = {{0.2, 0}, {}, {}};
  policy.kv_frac = {{0.0, 0.0, 1.0}};
  Workload work = WorkOf(12, {604, 32});  // 128 slots, which end with a page as they are
  const auto bytes_of = [&] {
    return LayOut(MakeModel(*BuiltInShape("opt-125m")), MachineWith(0), work, policy, kNeeds)
        .KvBytes();
  };
  const int64_t of_means = bytes_of();
  for (std::size_t row = 0; row < work.sample.size(); ++row)
    work.sample[row].prompt_tokens += row % 2 == 0 ? 540 : -540;  // 236 slots and 20
  work.longest.prompt_tokens += 540;
  EXPECT_LE(bytes_of(), of_means * 11 / 10);
}

// KV on disk costs the space that it costs in memory, but for parts of pages.
TEST(PlanTest, RowsOnDiskTakeHardlyMoreThanInMemory) {
  for (const char* name : {"opt-125m", "opt-1.3b", "llama-3.2-1b", "qwen2.5-0.5b", "qwen2.5-7b",
                           "gemma-2-2b", "phi-4", "mistral-7b"}) {
    const std::optional<ModelShape> shape = BuiltInShape(name);
    ASSERT_TRUE(shape.has_value()) << name;
    for (const KvBits bits : {KvBits(16), KvBits(8, 4), KvBits(8)}) {
      for (const double kept : {1.0, 0.2}) {
        SCOPED_TRACE(CaseOf("model", name, "bits", bits, "kept", kept));
        Policy policy = Batches(8, 1);
        policy.kv_bits = bits;
        if (kept < 1.0) {
          policy.kv.kind = KvPolicyKind::kH2o;
          policy.kv.budget = {{kept, 0}, {}, {}};
        }
        const auto bytes_on = [&](Tier tier) {
          policy.kv_frac = {};
          policy.kv_frac[tier] = 1.0;
          return LayOut(MakeModel(*shape), MachineWith(0), WorkOf(8, {512, 512}), policy, kNeeds)
              .KvBytes();
        };
        const auto in_memory = static_cast<double>(bytes_on(Tier::kCpu));
        EXPECT_LE(static_cast<double>(bytes_on(Tier::kDisk)) / in_memory, kept < 1.0 ? 1.25 : 1.08);
      }
    }
  }
}

// Of a model in which every other layer sees a window, those layers hold a window's slots.
TEST(PlanTest, LayersWithAWindowTakeTheWindowsSlots) {
  Model model = MakeModel(*BuiltInShape("llama-3.2-1b"));
  for (LayerSpec& layer : model.layers) {
    if (layer.decoder_layer % 2 != 0 || !Attends(layer.ops)) continue;
    for (Op& op : layer.ops) {
      if (auto* attend = std::get_if<Attend>(&op)) attend->window = 128;
    }
  }
  const Workload longer = WorkOf(8, {1000, 24});
  const Plan plan = LayOut(model, MachineWith(0), longer, Batches(8, 1), kNeeds);
  ASSERT_EQ(plan.kv_classes.size(), 2);
  EXPECT_EQ(plan.RowSlots(Tier::kCpu, 0, 1024), 128);  // 127 tokens and the newest
  EXPECT_EQ(plan.RowSlots(Tier::kCpu, 1, 1024), 1024);
  EXPECT_EQ(plan.KvBytes(), 8 * 8 * (128 + 1024) * plan.slot_bytes);
  const Plan shorter = LayOut(model, MachineWith(0), WorkOf(8, {100, 28}), Batches(8, 1), kNeeds);
  EXPECT_EQ(shorter.kv_classes.size(), 1) << "no row outgrows the window";
}

// KV heads with budgets of their own lie one behind the other, each in whole blocks; a row is
// filled up to whole pages of the disk.
TEST(PlanTest, KvHeadsWithBudgetsOfTheirOwnTakeWhatTheyKeep) {
  const ModelShape shape = *BuiltInShape("llama-3.2-1b");  // 16 layers of 8 KV heads of 64
  Policy policy = Batches(4, 1);
  policy.kv_bits = {8, 4};
  policy.kv.kind = KvPolicyKind::kH2o;
  std::vector<KvBudget> heads(8, {{0.1, 0}, {}, {}});
  heads[2] = {{1.0, 0}, {}, {}};
  policy.kv.head_budgets.assign(16, heads);
  const auto plan_with = [&] {
    return LayOut(MakeModel(shape), MachineWith(0), WorkOf(4, {400, 100}), policy, kNeeds);
  };
  const Plan plan = plan_with();
  ASSERT_EQ(plan.KvRuns(), 8);
  EXPECT_EQ(plan.kv_classes.size(), 1U);
  EXPECT_EQ(plan.slot_bytes, KvSlotBytesWithState(1, 64, {8, 4}));
  EXPECT_EQ(plan.RunKeep(0, 0, 500), (KvKeep{0, 25, 25}));
  EXPECT_EQ(plan.RunSlots(0, 0, 500), 64);   // 50 tokens and the newest
  EXPECT_EQ(plan.RunSlots(0, 2, 500), 512);  // all
  EXPECT_EQ(plan.RowSlots(Tier::kCpu, 0, 500), 7 * 64 + 512);
  EXPECT_EQ(plan.KvBytes(), 4 * 16 * (7 * 64 + 512) * plan.slot_bytes);
  EXPECT_EQ(plan.MostRunSlots(500), 512);
  EXPECT_EQ(plan.MostHeadSlots(500), (7 * 64 + 512) / 8);
  policy.kv.head_budgets.back().front() = {{0.5, 0}, {}, {}};
  const Plan two = plan_with();
  EXPECT_EQ(two.kv_classes.size(), 2U) << "the last layer differs";
  EXPECT_EQ(two.RunSlots(1, 0, 500), 256);
  // Of all layers, not of the largest one.
  EXPECT_EQ(two.MostHeadSlots(500), (15 * (7 * 64 + 512) + 6 * 64 + 256 + 512 + 127) / 128);
  policy.kv_frac = {{0.0, 0.0, 1.0}};
  const Plan on_disk = plan_with();
  EXPECT_EQ(on_disk.RowSlots(Tier::kDisk, 0, 500) * on_disk.slot_bytes % 4096, 0);
}

// Filled up by a sixteenth at most, a block with scores and positions is pages of the disk.
TEST(PlanTest, EvictingRowsOfLargeModelsAreNotPaddedOnDisk) {
  Policy policy = Batches(8, 1);
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.budget = {{0.2, 0}, {}, {}};
  policy.kv_frac[Tier::kCpu] = 0;
  policy.kv_frac[Tier::kDisk] = 1;
  for (const char* name : {"opt-1.3b", "opt-6.7b", "opt-13b", "opt-30b", "opt-66b", "opt-175b"}) {
    const ModelShape shape = *BuiltInShape(name);
    const Plan plan = LayOut(MakeModel(shape), MachineWith(0), WorkOf(8, {32, 64}), policy, kNeeds);
    EXPECT_EQ(plan.slot_align[Tier::kDisk], 8) << name;
    EXPECT_EQ(plan.RowSlots(Tier::kDisk, 0, 96), 24) << name;  // 20 tokens and the newest
    const int64_t used = shape.num_heads * (4 * shape.head_dim + kKvStateBytes);
    EXPECT_LE(plan.slot_bytes, used + used / 16) << name;
  }
}

Policy OnDisk(KvPolicyKind kind) {
  Policy policy = Batches(8, 3);
  policy.kv.kind = kind;
  policy.kv.budget = {{0.2, 0}, {}, {}};
  policy.kv_frac = {};
  policy.kv_frac[Tier::kCpu] = policy.kv_frac[Tier::kDisk] = 0.5;
  return policy;
}

Plan PlanOnDisk(const Policy& policy, Tier device) {
  Machine machine = MachineWith(int64_t{1} << 40, int64_t{1} << 40);
  machine.device = device;
  machine.cap_bytes[Tier::kGpu] = device == Tier::kGpu ? int64_t{1} << 40 : 0;
  return LayOut(MakeModel(*BuiltInShape("opt-1.3b")), machine, WorkOf(24, {32, 64}), policy,
                kNeeds);
}

TEST(PlanTest, RowsOnDiskWithScoresHaveALogWhereTheCpuAttends) {
  Policy h2o = OnDisk(KvPolicyKind::kH2o);
  const Plan plan = PlanOnDisk(h2o, Tier::kCpu);
  ASSERT_TRUE(plan.kv_log.exists());
  EXPECT_EQ(plan.kv_log.rows, 4);            // the half of a batch
  EXPECT_EQ(plan.kv_log.state_bytes, 8192);  // 24 slots of 32 KV heads: 6,144
  EXPECT_EQ(plan.kv_log.token_bytes, 2 * 2048 * 2);
  EXPECT_FALSE(PlanOnDisk(OnDisk(KvPolicyKind::kWindow), Tier::kCpu).kv_log.exists());
  EXPECT_FALSE(PlanOnDisk(OnDisk(KvPolicyKind::kFull), Tier::kCpu).kv_log.exists());
  EXPECT_FALSE(PlanOnDisk(h2o, Tier::kGpu).kv_log.exists());
  h2o.cpu_attention = true;
  EXPECT_TRUE(PlanOnDisk(h2o, Tier::kGpu).kv_log.exists());
  h2o.kv_frac = {};
  h2o.kv_frac[Tier::kCpu] = 1.0;
  EXPECT_FALSE(PlanOnDisk(h2o, Tier::kCpu).kv_log.exists());
}

TEST(PlanTest, TheLogIsPlannedFor) {
  const Plan plan = PlanOnDisk(OnDisk(KvPolicyKind::kH2o), Tier::kCpu);
  const KvLogPlan& log = plan.kv_log;
  const int64_t bytes = 4 * (8192 + (log.passes - 1) * 8192);
  for (const Region& slot : log.staging) EXPECT_EQ(slot.bytes, bytes);
  EXPECT_EQ(plan.arena_bytes[Tier::kDisk], plan.kv[Tier::kDisk].region.bytes + 3 * 24 * bytes);
}

// It gives way to everything else.
TEST(PlanTest, ALogIsShorterOrLeftOutWhereMemoryIsShort) {
  const Policy policy = OnDisk(KvPolicyKind::kH2o);
  const ModelShape shape = *BuiltInShape("opt-1.3b");
  const Workload work = WorkOf(24, {32, 64});
  const auto plan_with = [&](int64_t cpu_bytes) {
    return MakePlan(MakeModel(shape), MachineWith(cpu_bytes, int64_t{1} << 40), work, policy,
                    kNeeds);
  };
  const Plan whole = plan_with(int64_t{1} << 40);
  const Plan shorter = plan_with(whole.PlannedBytes(Tier::kCpu) - 1);
  EXPECT_TRUE(shorter.kv_log.passes < whole.kv_log.passes);
  Policy without = policy;
  without.most_log_passes = 1;
  const Plan none = LayOut(MakeModel(shape), whole.machine, work, without, kNeeds);
  ASSERT_FALSE(none.kv_log.exists());
  const int64_t least = none.PlannedBytes(Tier::kCpu);
  EXPECT_LT(least, shorter.PlannedBytes(Tier::kCpu));
  EXPECT_FALSE(plan_with(least).kv_log.exists());
  EXPECT_THROW(plan_with(least - 1), Error);
}

// Pass by pass a token more, until a pass writes the rows whole; in each as many as in the next.
TEST(PlanTest, BlocksAndBatchesTakeTurnsToBeWrittenWhole) {
  KvLogPlan log;
  log.passes = 6;
  for (int64_t pass = 0; pass < 40; ++pass) {
    int64_t whole = 0;
    for (int64_t batch = 0; batch < 3; ++batch) {
      for (int64_t decoder_layer = 0; decoder_layer < 24; ++decoder_layer) {
        SCOPED_TRACE(CaseOf("pass", pass, "batch", batch, "decoder_layer", decoder_layer));
        const int64_t tokens = log.NumTokens(pass, batch, decoder_layer);
        const int64_t before = log.NumTokens(pass - 1, batch, decoder_layer);
        ASSERT_TRUE(tokens == before + 1 || tokens == 0);
        ASSERT_LT(tokens, log.passes);
        whole += tokens == 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(whole, pass == 0 ? 3 * 24 : 3 * 24 / 6) << "pass " << pass;
  }
}

TEST(PlanTest, ARowBeyondTheSampleFitsAlone) {
  Workload work = WorkOf(3, {10, 6});
  work.num_requests = 1000;
  work.longest = {2000, 48};
  const Plan plan = MakePlan(MakeModel(*BuiltInShape("opt-125m")), MachineWith(int64_t{1} << 40),
                             work, Batches(2, 1), kNeeds);
  EXPECT_EQ(plan.batch.slots, 2048);
  EXPECT_EQ(plan.batch.prompt_tokens, 2000);
}

TEST(PlanTest, ABlockHasNoMoreBatchesThanTheWorkloadFills) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  const Machine machine = MachineWith(int64_t{1} << 40);
  EXPECT_EQ(
      MakePlan(MakeModel(shape), machine, WorkOf(10, {8, 8}), Batches(4, 7), kNeeds).num_batches,
      3);
  EXPECT_EQ(
      MakePlan(MakeModel(shape), machine, WorkOf(10, {8, 8}), Batches(4, 2), kNeeds).num_batches,
      2);
  EXPECT_EQ(
      MakePlan(MakeModel(shape), machine, WorkOf(0, {0, 0}), Batches(4, 2), kNeeds).num_batches, 1);
}

}  // namespace
}  // namespace spillway
