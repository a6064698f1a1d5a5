// The kernels of a fixed-size KV cache against the rule from scratch, over whole runs; and their
// bits against plain attention, other numbers of threads and other neighbours.
#include "kernels/attention/budget_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "kernels/attention/attention_isa.h"
#include "tests/kernels/kv_budget_model.h"
#include "tests/kernels/kv_budget_row.h"
#include "tests/kernels/mean_table.h"
#include "tests/kernels/turn_table.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

class BudgetAttentionTest : public testing::TestWithParam<IsaAndKv> {
 protected:
  Isa isa() const { return GetParam().isa; }
  KvStorage kv() const { return GetParam().kv; }
};

INSTANTIATE_TEST_SUITE_P(All, BudgetAttentionTest, testing::ValuesIn(AllKvCases()), KvParamName);

void SwapTokens(const KvHead<std::byte>& head, int64_t a, int64_t b) {
  std::swap_ranges(head.Key(a), head.Key(a) + head.KeyBytes(), head.Key(b));
  std::swap_ranges(head.Value(a), head.Value(a) + head.ValueBytes(), head.Value(b));
  for (int64_t at = 0; at < head.NumKeyRanges() * kKvRangeStride; at += kKvRangeStride)
    std::swap_ranges(head.KeyRanges(a) + at, head.KeyRanges(a) + at + 4, head.KeyRanges(b) + at);
  for (int64_t at = 0; at < head.NumValueRanges() * kKvRangeStride; at += kKvRangeStride) {
    std::swap_ranges(head.ValueRanges(a) + at, head.ValueRanges(a) + at + 4,
                     head.ValueRanges(b) + at);
  }
  std::swap(*head.Score(a), *head.Score(b));
  std::swap(*head.Position(a), *head.Position(b));
}

// The slots of every other KV head in reverse, so that neighbours hold different tokens at a slot
// even where the rule gives each the same.
void ReverseOddHeads(BudgetRow& row) {
  for (int64_t kv_head = 1; kv_head < row.c.num_kv_heads; kv_head += 2) {
    for (int64_t slot = 0; slot < row.num_held / 2; ++slot)
      SwapTokens(row.head(kv_head), slot, row.num_held - 1 - slot);
  }
}

// A row and its model, one KV head each.
struct Checked {
  BudgetRow row;
  std::vector<KvBudgetModel> models;
  const TurnTable* turns = nullptr;  // of a rolling cache
  const MeanTable* means = nullptr;  // of centred keys
  bool in_prompt = true;

  void Roll(const TurnTable& table) {
    turns = &table;
    row.turns = table.turns();
    row.newest_place = row.c.keep.slots();
  }
  void Centre(const MeanTable& table) {
    means = &table;
    row.means = table.means();
  }
  KvBudgetModel::Seen Seen(int64_t kv_head) const {
    if (means != nullptr) {
      return [this, kv_head](const ModelToken& token, int64_t, int64_t) {
        std::vector<double> key = token.k;
        const float* mean = row.means.At(kv_head, token.position, row.c.head_dim);
        for (double& element : key) element += *mean++;
        return key;
      };
    }
    if (turns == nullptr) return nullptr;
    return [this](const ModelToken& token, int64_t earlier, int64_t later) {
      return turns->Turned(token.k, in_prompt ? earlier : row.newest_place - later);
    };
  }

  Checked(const BudgetCase& c, KvStorage kv, uint32_t seed, double tolerance)
      : row(c, kv, seed),
        models(static_cast<size_t>(c.num_kv_heads), KvBudgetModel(c.kind, c.keep, tolerance)) {}

  // Adds the token to each model and compares the outputs of its heads with `out`.
  void AttendToken(int64_t token, const float* out) {
    const BudgetCase& c = row.c;
    for (int64_t kv_head = 0; kv_head < c.num_kv_heads; ++kv_head) {
      KvBudgetModel& model = models[static_cast<size_t>(kv_head)];
      model.Add({token, row.RoundedKey(token, kv_head), row.RoundedValue(token, kv_head)});
      for (int64_t head = kv_head * c.group(); head < (kv_head + 1) * c.group(); ++head) {
        std::vector<double> q;
        for (int64_t d = 0; d < c.head_dim; ++d)
          q.push_back(row.q(token)[head * c.head_dim + d] * c.scale());
        if (row.storage.bits.key != 16 && turns == nullptr) q = RoundedQueryRef(std::move(q));
        const std::vector<double> expected = model.Attend(q, Seen(kv_head));
        for (int64_t d = 0; d < c.head_dim; ++d)
          ASSERT_NEAR(out[head * c.head_dim + d], expected[static_cast<size_t>(d)], 1e-5)
              << "position " << token << " head " << head;
      }
    }
  }
  // Expects that the cache holds the tokens that the model holds, and what is kept with them.
  void CheckCache() {
    for (int64_t kv_head = 0; kv_head < row.c.num_kv_heads; ++kv_head) {
      for (const ModelToken& token : models[static_cast<size_t>(kv_head)].tokens())
        CheckToken(kv_head, token);
    }
  }
  void CheckToken(int64_t kv_head, const ModelToken& token) {
    const KvHead<std::byte> head = row.head(kv_head);
    int64_t slot = 0;
    while (slot < row.num_held && *head.Position(slot) != token.position) ++slot;
    ASSERT_LT(slot, row.num_held);
    if (UsesScores(row.c.kind)) {
      ASSERT_NEAR(*head.Score(slot), token.score, 2e-5 * (1 + token.score))
          << "position " << token.position << " KV head " << kv_head;
    }
    ASSERT_EQ(row.Elements(KvTokenRef::Key(head, slot, row.storage.dtype)), token.k);
    ASSERT_EQ(row.Elements(KvTokenRef::Value(head, slot, row.storage.dtype)), token.v);
  }
  void RunPrompt(int64_t chunk, Isa isa) {
    Prefill(row, chunk, 2, isa);
    for (int64_t token = 0; token < row.c.prompt; ++token)
      ASSERT_NO_FATAL_FAILURE(
          AttendToken(token, row.out.data() + token * row.c.num_heads * row.c.head_dim));
    for (int64_t kv_head = 0; kv_head < row.c.num_kv_heads; ++kv_head)
      ASSERT_NO_FATAL_FAILURE(
          models[static_cast<size_t>(kv_head)].KeepAfterPrompt(row.HeldPositions(kv_head)));
    ReverseOddHeads(row);
    in_prompt = false;
    ASSERT_NO_FATAL_FAILURE(CheckCache());
  }
  void RunStep(Isa isa) {
    const int64_t token = row.position;
    StepAll({&row}, 2, isa);
    ASSERT_NO_FATAL_FAILURE(AttendToken(token, row.out.data()));
    for (int64_t kv_head = 0; kv_head < row.c.num_kv_heads; ++kv_head)
      ASSERT_NO_FATAL_FAILURE(
          models[static_cast<size_t>(kv_head)].Evict(row.HeldPositions(kv_head)))
          << "position " << token << " KV head " << kv_head;
    ASSERT_NO_FATAL_FAILURE(CheckCache());
  }
};

// Shapes and budgets of all kinds; prompts shorter than, as long as and longer than the budget.
BudgetCase RandomCase(std::mt19937& random) {
  constexpr int64_t kShapes[][3] = {{2, 2, 64}, {4, 1, 32},  {2, 2, 80}, {4, 1, 128}, {8, 2, 20},
                                    {3, 3, 7},  {30, 1, 16}, {6, 3, 80}, {35, 35, 8}};
  constexpr KvPolicyKind kKinds[] = {KvPolicyKind::kH2o, KvPolicyKind::kH2o, KvPolicyKind::kWindow,
                                     KvPolicyKind::kH2oFlexgen};
  auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  const auto& shape = kShapes[below(std::size(kShapes))];
  BudgetCase c{shape[0], shape[1], shape[2], kKinds[below(std::size(kKinds))], {}, 0, 0};
  const bool window = c.kind == KvPolicyKind::kWindow;
  c.keep.sinks = window ? below(5) : 0;
  c.keep.heavy = window || below(4) == 0 ? 0 : below(40);
  c.keep.recent = below(4) == 0 ? 1 : 1 + below(40);
  if (c.keep.sinks == 0 && below(2) == 0) c.keep.window = c.keep.slots() + 1 + below(3) * below(30);
  const int64_t prompts[] = {1 + below(c.keep.slots()), c.keep.slots(), c.keep.slots() + 1,
                             c.keep.slots() + 1 + below(80)};
  c.prompt = prompts[below(4)];
  c.steps = std::max<int64_t>(0, c.keep.slots() - c.prompt) + 55;
  return c;
}

TEST_P(BudgetAttentionTest, WholeRunsFollowTheRule) {
  std::mt19937 random(11);
  for (uint32_t run = 0; run < 40; ++run) {
    const BudgetCase c = RandomCase(random);
    SCOPED_TRACE(testing::PrintToString(c));
    Checked checked(c, kv(), run, 1e-5);
    ASSERT_NO_FATAL_FAILURE(checked.RunPrompt(1 + static_cast<int64_t>(random() % 60), isa()));
    while (checked.row.position < c.num_tokens()) ASSERT_NO_FATAL_FAILURE(checked.RunStep(isa()));
  }
}

// Keys are turned by their places among the tokens held, and stored unturned.
TEST_P(BudgetAttentionTest, RollingRunsFollowTheRule) {
  std::mt19937 random(12);
  for (uint32_t run = 0; run < 40; ++run) {
    BudgetCase c = RandomCase(random);
    c.keep.window = 0;
    const bool halves = random() % 4 != 0;
    const int64_t dims = random() % 2 == 0 ? c.head_dim / 2 * 2 : c.head_dim / 4 * 2;
    const TurnTable table(std::max(c.prompt, c.keep.slots() + 1) + static_cast<int64_t>(run % 3),
                          std::max<int64_t>(2, dims),
                          halves ? RopePairs::kHalves : RopePairs::kNeighbours);
    SCOPED_TRACE(testing::PrintToString(c) + CaseOf(" turned", table.dims, "halves", halves));
    Checked checked(c, kv(), run, 1e-5);
    checked.Roll(table);
    ASSERT_NO_FATAL_FAILURE(checked.RunPrompt(1 + static_cast<int64_t>(random() % 60), isa()));
    while (checked.row.position < c.num_tokens()) ASSERT_NO_FATAL_FAILURE(checked.RunStep(isa()));
  }
}

// Keys get the means at their own positions, wherever they lie.
class CentredBudgetTest : public BudgetAttentionTest {};
INSTANTIATE_TEST_SUITE_P(All, CentredBudgetTest, testing::ValuesIn(CentredKvCases()), KvParamName);

TEST_P(CentredBudgetTest, WholeRunsFollowTheRule) {
  std::mt19937 random(13);
  for (uint32_t run = 0; run < 40; ++run) {
    const BudgetCase c = RandomCase(random);
    SCOPED_TRACE(testing::PrintToString(c));
    const MeanTable table(c.num_tokens(), c.num_kv_heads, c.head_dim);
    Checked checked(c, kv(), run, 1e-5);
    checked.Centre(table);
    ASSERT_NO_FATAL_FAILURE(checked.RunPrompt(1 + static_cast<int64_t>(random() % 60), isa()));
    while (checked.row.position < c.num_tokens()) ASSERT_NO_FATAL_FAILURE(checked.RunStep(isa()));
  }
}

// Budgets of more than two runs of 64 slots, whose weights are relative to maxima of their own.
TEST_P(BudgetAttentionTest, LongBudgetsFollowTheRule) {
  // 17: three to a task, two of them in a register of 16 lanes.
  for (const auto& [num_heads, num_kv_heads] :
       {std::pair{2, 2}, std::pair{6, 3}, std::pair{17, 17}, std::pair{34, 17}}) {
    const BudgetCase c{num_heads, num_kv_heads, 32, KvPolicyKind::kH2o, {0, 130, 100}, 240, 30};
    SCOPED_TRACE(testing::PrintToString(c));
    Checked checked(c, kv(), 17, 1e-5);
    ASSERT_NO_FATAL_FAILURE(checked.RunPrompt(240, isa()));
    while (checked.row.position < c.num_tokens()) ASSERT_NO_FATAL_FAILURE(checked.RunStep(isa()));
  }
}

// Heavy hitters that leave the model's window go before all others, in the prompt and after it.
TEST_P(BudgetAttentionTest, HeavyHittersLeaveWithTheWindow) {
  for (const KvPolicyKind kind : {KvPolicyKind::kH2o, KvPolicyKind::kH2oFlexgen}) {
    for (const auto& [num_heads, num_kv_heads] :
         {std::pair{2, 2}, std::pair{6, 3}, std::pair{8, 1}}) {
      for (const int64_t prompt : {20, 41, 150}) {
        const BudgetCase c{num_heads, num_kv_heads, 32, kind, {0, 15, 20, 48}, prompt, 150};
        SCOPED_TRACE(testing::PrintToString(c));
        Checked checked(c, kv(), 23, 1e-5);
        ASSERT_NO_FATAL_FAILURE(checked.RunPrompt(33, isa()));
        while (checked.row.position < c.num_tokens()) {
          ASSERT_NO_FATAL_FAILURE(checked.RunStep(isa()));
          const std::set<int64_t> held = checked.row.HeldPositions(0);
          ASSERT_GT(*held.begin(), checked.row.position - 48);
        }
      }
    }
  }
}

// The last of an odd number of heads has no other beside it: what lies behind its state, here
// nothing, is not looked at, however equal all scores are.
TEST_P(BudgetAttentionTest, OddNumbersOfHeadsFollowTheRule) {
  // 17: three to a task, two of them in a register of 16 lanes.
  for (const auto& [num_heads, num_kv_heads] :
       {std::pair{3, 3}, std::pair{8, 1}, std::pair{6, 3}, std::pair{17, 17}, std::pair{34, 17}}) {
    for (const KvKeep keep : {KvKeep{0, 0, 40}, KvKeep{2, 0, 23}}) {
      const BudgetCase c{num_heads, num_kv_heads, 16, KvPolicyKind::kWindow, keep, 40, 30};
      SCOPED_TRACE(testing::PrintToString(c));
      Checked checked(c, kv(), 19, 0);
      ASSERT_NO_FATAL_FAILURE(checked.RunPrompt(40, isa()));
      while (checked.row.position < c.num_tokens()) ASSERT_NO_FATAL_FAILURE(checked.RunStep(isa()));
    }
  }
}

void CheckEqualKeys(const BudgetCase& c, const KvStorage& kv, Isa isa) {
  SCOPED_TRACE(testing::PrintToString(c));
  Checked checked(c, kv, 5, 0);
  for (int64_t token = 1; token < c.num_tokens(); ++token)
    std::copy_n(checked.row.k(0), c.num_kv_heads * c.head_dim,
                const_cast<float*>(checked.row.k(token)));
  Prefill(checked.row, 10, 2, isa);
  ReverseOddHeads(checked.row);
  // The prompt's own scores differ by the number of queries: all are made the same.
  for (int64_t kv_head = 0; kv_head < c.num_kv_heads; ++kv_head) {
    KvBudgetModel& model = checked.models[static_cast<size_t>(kv_head)];
    for (int64_t slot = 0; slot < checked.row.num_held; ++slot) {
      const KvHead<std::byte> head = checked.row.head(kv_head);
      *head.Score(slot) = 0.5F;
      const int64_t position = *head.Position(slot);
      model.Add({position, checked.row.RoundedKey(position, kv_head),
                 checked.row.RoundedValue(position, kv_head), 0.5});
    }
  }
  while (checked.row.position < c.num_tokens()) ASSERT_NO_FATAL_FAILURE(checked.RunStep(isa));
}

TEST_P(BudgetAttentionTest, EqualKeysAndScoresLoseTheHigherPosition) {
  constexpr int64_t kShapes[][2] = {{4, 2}, {3, 3}, {4, 1}, {17, 17}, {34, 17}};
  for (const KvPolicyKind kind : {KvPolicyKind::kH2o, KvPolicyKind::kH2oFlexgen}) {
    for (const KvKeep keep : {KvKeep{0, 70, 5}, KvKeep{0, 3, 1}, KvKeep{0, 33, 40}}) {
      for (const auto& [num_heads, num_kv_heads] : kShapes)
        CheckEqualKeys({num_heads, num_kv_heads, 64, kind, keep, keep.slots() + 9, 60}, kv(),
                       isa());
    }
  }
}

void CompareStepByStep(const BudgetCase& c, const std::vector<float>& sinks, KvStorage kv,
                       Isa isa) {
  BudgetRow row(c, kv, 3);
  row.sinks = sinks;
  Prefill(row, 20, 2, isa);
  BudgetRow reference(c, kv, 3);
  reference.sinks = sinks;
  while (row.position < c.num_tokens()) {
    SCOPED_TRACE(CaseOf("position", row.position));
    std::ranges::copy(row.cache.span(), reference.cache.data());
    reference.num_held = row.num_held;
    reference.position = row.position;
    StepAll({&reference}, BudgetAttentionRef);
    StepAll({&row}, 2, isa);
    for (size_t i = 0; i < row.out.size(); ++i)
      ASSERT_NEAR(row.out[i], reference.out[i], 4e-6) << i;
    for (int64_t kv_head = 0; kv_head < 2; ++kv_head) {
      SCOPED_TRACE(CaseOf("KV head", kv_head));
      for (int64_t slot = 0; slot < row.num_held; ++slot) {
        const KvHead<std::byte> ours = row.head(kv_head);
        const KvHead<std::byte> theirs = reference.head(kv_head);
        ASSERT_EQ(*ours.Position(slot), *theirs.Position(slot)) << slot;
        ASSERT_NEAR(*ours.Score(slot), *theirs.Score(slot), 1e-5) << slot;
        ASSERT_EQ(row.Elements(KvTokenRef::Key(ours, slot, kv.dtype)),
                  row.Elements(KvTokenRef::Key(theirs, slot, kv.dtype)))
            << slot;
        ASSERT_EQ(row.Elements(KvTokenRef::Value(ours, slot, kv.dtype)),
                  row.Elements(KvTokenRef::Value(theirs, slot, kv.dtype)))
            << slot;
      }
    }
  }
}

TEST_P(BudgetAttentionTest, AgreesWithTheOracleStepByStep) {
  for (const KvPolicyKind kind :
       {KvPolicyKind::kH2o, KvPolicyKind::kWindow, KvPolicyKind::kH2oFlexgen}) {
    SCOPED_TRACE(KvPolicyName(kind));
    const bool window = kind == KvPolicyKind::kWindow;
    const BudgetCase c{4, 2, 80, kind, {window ? 3 : 0, window ? 0 : 30, 20}, 45, 60};
    ASSERT_NO_FATAL_FAILURE(CompareStepByStep(c, {}, kv(), isa()));
    const std::vector<float> sinks = {-1.0F, 0.5F, 3.0F, 1.0F};
    ASSERT_NO_FATAL_FAILURE(CompareStepByStep(c, sinks, kv(), isa()));
  }
}

// Plain attention over a copy of the same slots, without state, before the step.
std::vector<float> PlainOutput(BudgetRow& row, Isa isa) {
  const BudgetCase& c = row.c;
  AlignedBytes kv(row.num_slots() * KvSlotBytes(c.num_kv_heads, c.head_dim, row.storage.bits));
  const int64_t block = KvBlockBytes(c.num_kv_heads, c.head_dim, row.storage.bits);
  const int64_t block_slots = KvBlockSlots(row.storage.bits);
  for (int64_t slot = 0; slot < row.num_slots(); slot += block_slots)
    std::copy_n(row.head(0).Block(slot), block, kv.data() + slot / block_slots * block);
  const AttentionRow plain{kv.data(), row.num_slots(), row.num_held, 1, 0, nullptr};
  std::vector<float> out(static_cast<size_t>(c.num_heads * c.head_dim));
  AttentionArgs args;
  args.q = row.q(row.position);
  args.k = row.k(row.position);
  args.v = row.v(row.position);
  SetShape(c, row.storage, args);
  args.out = out.data();
  args.out_stride = c.num_heads * c.head_dim;
  args.rows = {&plain, 1};
  args.sinks = row.sinks.empty() ? nullptr : row.sinks.data();
  AlignedBytes workspace(AttentionWorkspaceBytes(row.num_slots(), c.head_dim, 2, isa));
  Attention(args, workspace.span(), PoolOf(2), isa);
  return out;
}

TEST_P(BudgetAttentionTest, OutputIsPlainAttentionsToTheBit) {
  std::mt19937 random(23);
  std::vector<BudgetCase> cases = {{4, 4, 64, KvPolicyKind::kH2o, {0, 150, 60}, 230, 5},
                                   {6, 3, 128, KvPolicyKind::kH2o, {0, 100, 41}, 130, 12}};
  for (int run = 0; run < 12; ++run) cases.push_back(RandomCase(random));
  for (uint32_t run = 0; run < cases.size(); ++run) {
    const BudgetCase& c = cases[run];
    SCOPED_TRACE(testing::PrintToString(c));
    BudgetRow row(c, kv(), run);
    if (run % 2 == 1) row.sinks = RandomFloats(c.num_heads, run, 2.0F);
    Prefill(row, 64, 2, isa());
    while (row.position < c.num_tokens()) {
      const std::vector<float> plain = PlainOutput(row, isa());
      StepAll({&row}, 2, isa());
      ASSERT_EQ(Bits(row.out), Bits(plain)) << row.position;
    }
  }
}

// Rows of different lengths and budgets: together, alone, in chunks, on other threads.
void CheckBitsOfRows(std::span<const BudgetCase> cases, const KvStorage& kv, Isa isa) {
  auto run_all = [&](int64_t chunk, int num_threads, bool together) {
    std::vector<std::unique_ptr<BudgetRow>> rows;
    std::vector<BudgetRow*> all;
    for (const BudgetCase& c : cases) {
      rows.push_back(std::make_unique<BudgetRow>(c, kv, 40 + rows.size()));
      Prefill(*rows.back(), chunk, num_threads, isa);
      all.push_back(rows.back().get());
    }
    for (int64_t step = 0; step < 20; ++step) {
      if (together) StepAll(all, num_threads, isa);
      for (size_t i = 0; !together && i < all.size(); ++i) StepAll({all[i]}, num_threads, isa);
    }
    return rows;
  };
  const auto expected = run_all(1000, 1, false);
  for (const auto& rows : {run_all(1000, 1, true), run_all(1000, 2, true), run_all(7, 4, true),
                           run_all(1, 2, false)}) {
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(Bits(rows[i]->out), Bits(expected[i]->out)) << i;
      EXPECT_TRUE(std::ranges::equal(rows[i]->cache.span(), expected[i]->cache.span())) << i;
    }
  }
}

TEST_P(BudgetAttentionTest, BitsDoNotDependOnChunksNeighboursOrThreads) {
  // {40, 40}: more heads than one decode task takes; {12, 6}: one key for two queries; {14, 2}: for
  // seven; {40, 1}: more queries than one decode task takes.
  constexpr int64_t kShapes[][3] = {
      {8, 2, 64}, {40, 40, 16}, {12, 6, 80}, {14, 2, 24}, {40, 1, 16}};
  for (const KvPolicyKind kind :
       {KvPolicyKind::kH2o, KvPolicyKind::kH2oFlexgen, KvPolicyKind::kWindow}) {
    const int64_t heavy = UsesScores(kind) ? 1 : 0;
    for (const auto& [num_heads, num_kv_heads, head_dim] : kShapes) {
      const BudgetCase cases[] = {
          {num_heads, num_kv_heads, head_dim, kind, {0, heavy * 20, 21}, 100, 20},
          {num_heads, num_kv_heads, head_dim, kind, {0, heavy * 70, 10}, 30, 20},
          {num_heads, num_kv_heads, head_dim, kind, {0, 0, 1}, 3, 20},
          {num_heads, num_kv_heads, head_dim, kind, {0, heavy * 15, 1}, 16, 20}};
      SCOPED_TRACE(num_heads);
      CheckBitsOfRows(cases, kv(), isa());
    }
  }
}

// Tasks with as many queries as they take: four rows and more leave one worker's with all heads.
TEST_P(BudgetAttentionTest, BitsOfFullTasks) {
  constexpr int64_t kShapes[][3] = {{32, 32, 64}, {32, 16, 128}, {32, 4, 64}, {32, 8, 128}};
  for (const auto& [num_heads, num_kv_heads, head_dim] : kShapes) {
    const KvPolicyKind kind = KvPolicyKind::kH2o;
    const BudgetCase cases[] = {{num_heads, num_kv_heads, head_dim, kind, {0, 20, 21}, 50, 20},
                                {num_heads, num_kv_heads, head_dim, kind, {0, 90, 60}, 145, 20},
                                {num_heads, num_kv_heads, head_dim, kind, {0, 0, 1}, 3, 20},
                                {num_heads, num_kv_heads, head_dim, kind, {0, 15, 1}, 16, 20}};
    AttentionArgs args;
    args.num_heads = num_heads;
    args.num_kv_heads = num_kv_heads;
    args.head_dim = head_dim;
    args.kv_bits = kv().bits;
    SCOPED_TRACE(num_heads);
    ASSERT_EQ(DecodeHeads(args, std::ssize(cases), 1) * (num_heads / num_kv_heads), kDecodeQueries);
    CheckBitsOfRows(cases, kv(), isa());
  }
}

// NaN in the last two heads. A task has three of 9 heads: two of them in a register of 16 lanes,
// one alone.
void CheckNan(int64_t num_heads, int64_t heavy, const KvStorage& kv, Isa isa) {
  const KvKeep keep{0, heavy, 4};
  const BudgetCase c{num_heads, num_heads, 64, KvPolicyKind::kH2o, keep, heavy + 20, 3};
  SCOPED_TRACE(testing::PrintToString(c));
  BudgetRow row(c, kv, 8);
  Prefill(row, c.prompt, 1, isa);
  const int64_t slot = heavy - 23;
  std::map<int64_t, int64_t> positions;  // of the heads' tokens that should go
  for (const int64_t head : {num_heads - 2, num_heads - 1}) {
    positions[head] = *row.head(head).Position(slot);
    *row.head(head).Score(slot) = kPoison;
  }
  StepAll({&row}, 1, isa);
  for (const auto& [head, position] : positions) {
    EXPECT_FALSE(row.HeldPositions(head).contains(position));
    EXPECT_EQ(*row.head(head).Position(slot), c.prompt);
  }
  // A query of NaN makes every score NaN; then positions alone decide, and the run goes on.
  std::fill_n(const_cast<float*>(row.q(c.prompt + 1)), c.stride(), kPoison);
  StepAll({&row}, 1, isa);
  for (int64_t head = 0; head < num_heads; ++head)
    EXPECT_FALSE(row.HeldPositions(head).contains(c.prompt + 1 - 4));
  StepAll({&row}, 1, isa);
  EXPECT_EQ(row.HeldPositions(0).size(), static_cast<size_t>(keep.slots()));
}

TEST_P(BudgetAttentionTest, ANanScoreGoesFirst) {
  for (const int64_t num_heads : {2, 3, 9})
    for (const int64_t heavy : {40, 100}) CheckNan(num_heads, heavy, kv(), isa());
}

TEST_P(BudgetAttentionTest, AWindowLeavesScoresAlone) {
  const BudgetCase c{2, 2, 64, KvPolicyKind::kWindow, {2, 0, 14}, 30, 40};
  BudgetRow row(c, kv(), 8);
  Prefill(row, 60, 1, isa());
  for (int64_t slot = 0; slot < row.num_held; ++slot) *row.head(0).Score(slot) = 7.0F;
  while (row.position < c.num_tokens()) StepAll({&row}, 1, isa());
  EXPECT_EQ(*row.head(0).Score(0), 7.0F);  // a sink's
  std::set<int64_t> expected = {0, 1};
  for (int64_t position = 56; position < 70; ++position) expected.insert(position);
  EXPECT_EQ(row.HeldPositions(0), expected);
  EXPECT_EQ(row.HeldPositions(1), expected);
}

}  // namespace
}  // namespace spillway::kernels
