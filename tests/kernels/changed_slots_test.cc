// Slots that ChangedSlots names against those that the kernels write to.
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/kv_budget_row.h"

namespace spillway::kernels {
namespace {

// K, V and state of a slot, of all KV heads.
std::vector<double> Contents(BudgetRow& row, int64_t slot) {
  std::vector<double> contents;
  for (int64_t kv_head = 0; kv_head < row.c.num_kv_heads; ++kv_head) {
    const KvHead<std::byte> head = row.head(kv_head);
    for (const std::byte* token : {head.Key(slot), head.Value(slot)}) {
      const auto* elements = reinterpret_cast<const uint16_t*>(token);
      contents.insert(contents.end(), elements, elements + row.c.head_dim);
    }
    contents.push_back(*head.Score(slot));
    contents.push_back(*head.Position(slot));
  }
  return contents;
}

// Contents of the slots that hold tokens.
std::vector<std::vector<double>> HeldContents(BudgetRow& row) {
  std::vector<std::vector<double>> held;
  for (int64_t slot = 0; slot < row.num_held; ++slot) held.push_back(Contents(row, slot));
  return held;
}

class ChangedSlotsTest : public ::testing::TestWithParam<BudgetCase> {};

TEST_P(ChangedSlotsTest, AStepWritesToNoOtherHeldSlots) {
  BudgetRow row(GetParam(), {DType::kF16, 16}, 1);
  const BudgetCase& c = row.c;
  Prefill(row, 7, 1, BestIsa());
  for (int64_t step = 0; step < c.steps; ++step) {
    const std::vector<std::vector<double>> before = HeldContents(row);
    const SlotRange changed = ChangedSlots(c.kind, c.keep, {c.prompt, row.position, 1});
    StepAll({&row}, 1, BestIsa());
    const std::vector<std::vector<double>> after = HeldContents(row);
    EXPECT_LE(changed.end, row.num_held);
    for (int64_t slot = 0; slot < row.num_held; ++slot) {
      const auto at = static_cast<size_t>(slot);
      const bool same = at < before.size() && before[at] == after[at];
      EXPECT_EQ(same, slot < changed.begin || slot >= changed.end) << step << ", slot " << slot;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ChangedSlotsTest,
    ::testing::Values(BudgetCase{4, 2, 16, KvPolicyKind::kWindow, {0, 0, 9}, 5, 40},
                      BudgetCase{4, 2, 16, KvPolicyKind::kWindow, {0, 0, 9}, 9, 40},
                      BudgetCase{4, 2, 16, KvPolicyKind::kWindow, {0, 0, 9}, 23, 40},
                      BudgetCase{4, 4, 16, KvPolicyKind::kWindow, {3, 0, 10}, 2, 40},
                      BudgetCase{4, 1, 16, KvPolicyKind::kWindow, {3, 0, 10}, 31, 40},
                      BudgetCase{4, 2, 16, KvPolicyKind::kWindow, {0, 0, 15, 16}, 20, 40},
                      BudgetCase{4, 2, 16, KvPolicyKind::kWindow, {0, 0, 1}, 6, 8},
                      BudgetCase{4, 2, 16, KvPolicyKind::kH2o, {0, 4, 5}, 23, 20},
                      BudgetCase{4, 2, 16, KvPolicyKind::kH2o, {0, 4, 5}, 3, 20}));

}  // namespace
}  // namespace spillway::kernels
