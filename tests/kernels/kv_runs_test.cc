// KV heads with caches and budgets of their own: each does, to the bit, what it does in a cache of
// all heads that have its budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

#include "kernels/attention/budget_attention.h"
#include "tests/kernels/kv_budget_row.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

class KvRunsTest : public testing::TestWithParam<IsaAndKv> {
 protected:
  Isa isa() const { return GetParam().isa; }
  KvStorage kv() const { return GetParam().kv; }
};

INSTANTIATE_TEST_SUITE_P(All, KvRunsTest, testing::ValuesIn(AllKvCases()), KvParamName);

// A cache of one KV head.
struct Run {
  AlignedBytes cache;
  KvKeep keep;
  int64_t num_slots;
  int64_t num_held;
};

// The heads of one row, and beside each a row whose heads all have its budget.
class Runs {
 public:
  Runs(const BudgetCase& c, std::span<const KvKeep> keeps, KvStorage storage, Isa isa)
      : c_(c), storage_(storage), isa_(isa) {
    for (const KvKeep& keep : keeps) {
      BudgetCase even = c;
      even.keep = keep;
      even_.push_back(std::make_unique<BudgetRow>(even, storage, 5));
      Prefill(*even_.back(), 30, 2, isa);
      const int64_t slots = RoundUp(keep.slots() + 1, KvBlockSlots(storage.bits));
      runs_.push_back({AlignedBytes(slots * KvSlotBytesWithState(1, c.head_dim, storage.bits)),
                       keep, slots, std::min(c.prompt, keep.slots())});
    }
    position_ = c.prompt;
  }

  void Compact(const std::function<void(const KvCompactArgs&)>& compact) {
    BudgetRow& prompt = *even_.front();
    std::vector<KvCompactRow> rows;
    for (std::size_t head = 0; head < runs_.size(); ++head) {
      Run& run = runs_[head];
      rows.push_back({prompt.prompt_kv.data(), prompt.token_scores.data(), c_.prompt,
                      run.cache.data(), run.num_slots, run.keep, static_cast<int64_t>(head)});
    }
    compact(
        {rows, c_.kind, c_.prompt, c_.num_heads, c_.num_kv_heads, c_.head_dim, storage_.bits, 1});
  }

  // One step of the runs by `step`, and of the rows beside them.
  void Step(const std::function<void(const BudgetAttentionArgs&)>& step) {
    const BudgetRow& tokens = *even_.front();
    std::vector<BudgetAttentionRow> rows;
    for (std::size_t head = 0; head < runs_.size(); ++head) {
      Run& run = runs_[head];
      rows.push_back({run.cache.data(), run.num_slots, run.num_held, position_, run.keep, 0,
                      static_cast<int64_t>(head)});
      run.num_held = HeldAfterStep(run.keep, run.num_held);
    }
    std::ranges::reverse(rows);  // any order
    out_.assign(static_cast<std::size_t>(c_.num_heads * c_.head_dim), kPoison);
    BudgetAttentionArgs args;
    args.q = tokens.q(position_);
    args.k = tokens.k(position_);
    args.v = tokens.v(position_);
    SetShape(c_, storage_, args);
    args.out = out_.data();
    args.out_stride = c_.num_heads * c_.head_dim;
    args.rows = rows;
    args.kind = c_.kind;
    args.run_kv_heads = 1;
    step(args);
    for (const auto& even : even_) StepAll({even.get()}, 2, isa_);
    ++position_;
  }

  void ExpectEqual(bool to_the_bit) {
    for (std::size_t index = 0; index < runs_.size(); ++index) {
      SCOPED_TRACE(CaseOf("position", position_, "KV head", index));
      Run& run = runs_[index];
      const KvHead<std::byte> ours{
          run.cache.data(), 1, c_.head_dim, 0, KvBlockBytesWithState(1, c_.head_dim, storage_.bits),
          storage_.bits};
      const KvHead<std::byte> theirs = even_[index]->head(static_cast<int64_t>(index));
      ASSERT_EQ(run.num_held, even_[index]->num_held);
      for (int64_t slot = 0; slot < run.num_held; ++slot)
        ASSERT_NO_FATAL_FAILURE(ExpectEqualSlots(ours, theirs, slot, to_the_bit));
    }
  }
  void ExpectEqualOutputs(bool to_the_bit) const {
    const auto width = static_cast<std::size_t>(c_.group() * c_.head_dim);
    for (std::size_t index = 0; index < runs_.size(); ++index) {
      for (std::size_t at = index * width; at < (index + 1) * width; ++at) {
        const float theirs = even_[index]->out[at];
        ASSERT_NEAR(out_[at], theirs, to_the_bit ? 0.0 : 4e-6) << at;
      }
    }
  }
  int64_t position() const { return position_; }

 private:
  static void ExpectEqualSlots(const KvHead<std::byte>& ours, const KvHead<std::byte>& theirs,
                               int64_t slot, bool to_the_bit) {
    ASSERT_EQ(*ours.Position(slot), *theirs.Position(slot));
    ASSERT_NEAR(*ours.Score(slot), *theirs.Score(slot), to_the_bit ? 0.0 : 1e-5);
    ASSERT_EQ(
        std::memcmp(ours.Key(slot), theirs.Key(slot), static_cast<std::size_t>(ours.KeyBytes())),
        0);
    ASSERT_EQ(std::memcmp(ours.Value(slot), theirs.Value(slot),
                          static_cast<std::size_t>(ours.ValueBytes())),
              0);
  }

  BudgetCase c_;
  KvStorage storage_;
  Isa isa_;
  std::vector<std::unique_ptr<BudgetRow>> even_;
  std::vector<Run> runs_;
  std::vector<float> out_;
  int64_t position_ = 0;
};

struct Shape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
};

void CompareRuns(const BudgetCase& c, std::span<const KvKeep> keeps, KvStorage storage, Isa isa) {
  Runs runs(c, keeps, storage, isa);
  AlignedBytes workspace(std::max(KvCompactWorkspaceBytes(c.prompt, 2),
                                  BudgetAttentionWorkspaceBytes(102, c.head_dim, 2, isa)));
  runs.Compact([&](const KvCompactArgs& args) { KvCompact(args, workspace.span(), PoolOf(2)); });
  ASSERT_NO_FATAL_FAILURE(runs.ExpectEqual(true));
  while (runs.position() < c.num_tokens()) {
    runs.Step([&](const BudgetAttentionArgs& args) {
      BudgetAttention(args, workspace.span(), PoolOf(2), isa);
    });
    ASSERT_NO_FATAL_FAILURE(runs.ExpectEqualOutputs(true));
    ASSERT_NO_FATAL_FAILURE(runs.ExpectEqual(true));
  }
}

TEST_P(KvRunsTest, HeadsDoAsInACacheOfAllHeads) {
  const KvKeep free[] = {{0, 3, 4}, {0, 60, 41}, {0, 0, 1}, {0, 17, 18}};
  const KvKeep windowed[] = {{0, 3, 4, 40}, {0, 19, 20, 40}, {0, 0, 1, 40}, {0, 17, 18, 40}};
  for (const Shape& shape : {Shape{4, 4, 64}, Shape{12, 4, 80}, Shape{4, 4, 7}}) {
    SCOPED_TRACE(CaseOf("heads", shape.num_heads, "head_dim", shape.head_dim));
    const BudgetCase c{
        shape.num_heads, shape.num_kv_heads, shape.head_dim, KvPolicyKind::kH2o, {}, 50, 70};
    ASSERT_NO_FATAL_FAILURE(CompareRuns(c, free, kv(), isa()));
    ASSERT_NO_FATAL_FAILURE(CompareRuns(c, windowed, kv(), isa()));
  }
}

TEST(KvRunsRefTest, OraclesDoAsInACacheOfAllHeads) {
  const KvStorage storage = kKvStorages[0];
  const KvKeep keeps[] = {{0, 3, 4}, {0, 20, 11}};
  const BudgetCase c{4, 2, 64, KvPolicyKind::kH2o, {}, 40, 20};
  Runs runs(c, keeps, storage, BestIsa());
  runs.Compact(KvCompactRef);
  ASSERT_NO_FATAL_FAILURE(runs.ExpectEqual(false));
  while (runs.position() < c.num_tokens()) {
    runs.Step(BudgetAttentionRef);
    ASSERT_NO_FATAL_FAILURE(runs.ExpectEqualOutputs(false));
    ASSERT_NO_FATAL_FAILURE(runs.ExpectEqual(false));
  }
}

}  // namespace
}  // namespace spillway::kernels
