#include "kernels/kv/kv_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/kv_budget_row.h"

namespace spillway::kernels {
namespace {

struct LogCase {
  BudgetCase budget;
  KvStorage storage;
};

void PrintTo(const LogCase& c, std::ostream* out) {
  PrintTo(c.budget, out);
  *out << " " << c.storage.name();
}

// The log that steps leave: each step's token, the newest state.
class Log {
 public:
  explicit Log(const BudgetRow& row)
      : token_bytes_(KvSlotBytes(row.c.num_kv_heads, row.c.head_dim, row.storage.bits)),
        state_(KvStateBytes(row.c.num_kv_heads, row.num_slots())),
        tokens_(row.c.steps * stride()) {}

  static KvLogRow RowOf(BudgetRow& row) {
    return {row.cache.data(), row.num_held,     row.c.num_kv_heads,
            row.c.head_dim,   row.storage.bits, BudgetRow::kBlockFill};
  }
  void Take(BudgetRow& row) {
    TakeState(RowOf(row), state_.data());
    TakeToken(RowOf(row), row.position - 1,
              tokens_.data() + (row.position - 1 - row.c.prompt) * stride());
  }
  // Puts the tokens from first_position on.
  void Put(BudgetRow& row, int64_t first_position) {
    const int64_t first = first_position - row.c.prompt;
    PutLog(RowOf(row), state_.data(),
           {tokens_.data() + first * stride(), stride(), row.position - first_position,
            first_position});
  }

 private:
  int64_t stride() const { return token_bytes_ + 24; }  // tokens need not touch

  int64_t token_bytes_;
  AlignedBytes state_;
  AlignedBytes tokens_;
};

// K, V, score and position of every token that a row holds.
std::vector<std::byte> HeldBytes(BudgetRow& row) {
  std::vector<std::byte> bytes;
  const auto add = [&](const void* from, int64_t count) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + count);
  };
  for (int64_t kv_head = 0; kv_head < row.c.num_kv_heads; ++kv_head) {
    const KvHead<std::byte> head = row.head(kv_head);
    for (int64_t slot = 0; slot < row.num_held; ++slot) {
      add(head.Key(slot), head.KeyBytes());
      add(head.Value(slot), head.ValueBytes());
      for (int64_t group = 0; group < head.NumKeyRanges(); ++group)
        add(head.KeyRanges(slot) + group * kKvRangeStride, 4);
      for (int64_t group = 0; group < head.NumValueRanges(); ++group)
        add(head.ValueRanges(slot) + group * kKvRangeStride, 4);
      add(head.Score(slot), 4);
      add(head.Position(slot), 4);
    }
  }
  return bytes;
}

class KvLogTest : public ::testing::TestWithParam<LogCase> {};

// The row may have been written whole at any of the steps.
TEST_P(KvLogTest, ARowAsItWasAndTheLogAreTheRow) {
  const auto& [c, storage] = GetParam();
  for (int64_t whole_at = 0; whole_at < c.steps; ++whole_at) {
    BudgetRow row(c, storage, 7);
    BudgetRow read(c, storage, 7);
    Log log(row);
    Prefill(row, 16, 1, Isa::kPortable);
    for (int64_t step = 0; step < c.steps; ++step) {
      if (step == whole_at) std::ranges::copy(row.cache.span(), read.cache.data());
      StepAll({&row}, 1, Isa::kPortable);
      log.Take(row);
    }
    read.num_held = row.num_held;
    read.position = row.position;
    ASSERT_NE(HeldBytes(read), HeldBytes(row)) << "written whole after step " << whole_at;
    log.Put(read, c.prompt + whole_at);
    ASSERT_EQ(HeldBytes(read), HeldBytes(row)) << "written whole after step " << whole_at;
  }
}

const KvStorage kHalf = {DType::kF16, 16};
const KvStorage kEight = {DType::kF16, 8};
const KvStorage kFour = {DType::kF16, 4};

INSTANTIATE_TEST_SUITE_P(
    Rows, KvLogTest,
    ::testing::Values(
        LogCase{{4, 4, 64, KvPolicyKind::kH2o, {0, 9, 10}, 40, 12}, kHalf},
        LogCase{{4, 2, 5, KvPolicyKind::kH2o, {0, 3, 1}, 30, 20}, kHalf},    // dead tokens
        LogCase{{2, 2, 80, KvPolicyKind::kH2o, {0, 12, 12}, 3, 30}, kHalf},  // grows, then evicts
        LogCase{{2, 1, 64, KvPolicyKind::kWindow, {3, 0, 9}, 20, 12}, kHalf},
        LogCase{{4, 4, 64, KvPolicyKind::kH2oFlexgen, {0, 9, 10}, 40, 12}, kHalf},
        LogCase{{4, 2, 64, KvPolicyKind::kH2o, {0, 9, 10}, 40, 12}, kEight},
        LogCase{{4, 2, 80, KvPolicyKind::kH2o, {0, 9, 10}, 12, 20}, kFour},
        LogCase{{2, 2, 5, KvPolicyKind::kH2o, {0, 3, 2}, 30, 12}, kFour}));

}  // namespace
}  // namespace spillway::kernels
