#include "kernels/attention/kv_compact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "spillway/round.h"
#include "tests/kernels/kv_budget_row.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

// A compaction's inputs: every element of K and V tells its token, head and column apart.
struct Prompt {
  BudgetCase c;
  KvBits bits = {};
  int64_t block_fill;
  AlignedBytes from;
  AlignedBytes to;
  std::vector<float> scores;  // [num_heads][prompt + 2]

  Prompt(const BudgetCase& budget_case, uint32_t seed, KvBits kv_bits = {})
      : c(budget_case),
        bits(kv_bits),
        block_fill(seed % 2 * 96),
        from(RoundUp(c.prompt, KvBlockSlots(bits)) * KvSlotBytes(c.num_kv_heads, c.head_dim, bits)),
        to(num_slots() / KvBlockSlots(bits) * to_block()),
        scores(static_cast<size_t>(c.num_heads * stride())) {
    std::mt19937 random(seed);
    for (std::byte& byte : from.span()) byte = std::byte(random() & 0xFF);
    // Few values, exact in fp32 whatever the order of a sum: many ties.
    for (float& score : scores) score = static_cast<float>(random() % 4) * 0.25F;
  }
  int64_t stride() const { return c.prompt + 2; }
  int64_t num_slots() const { return RoundUp(c.keep.slots() + 1, KvBlockSlots(bits)); }
  int64_t to_block() const {
    return KvBlockBytesWithState(c.num_kv_heads, c.head_dim, bits) + block_fill;
  }
  KvCompactRow Row(AlignedBytes& kv) const {
    return {const_cast<AlignedBytes&>(from).data(),
            scores.data(),
            c.prompt,
            kv.data(),
            num_slots(),
            c.keep};
  }
  // The row, with the first tokens, in whole steps, copied to `prefix`, or none where it is short.
  KvCompactRow RowBehind(AlignedBytes& prefix, AlignedBytes& kv) const {
    KvCompactRow row = Row(kv);
    row.prefix_tokens = c.prompt / kPrefixStep * kPrefixStep;
    const int64_t bytes = row.prefix_tokens * KvSlotBytes(c.num_kv_heads, c.head_dim, bits);
    prefix = AlignedBytes(bytes);
    std::copy_n(row.from, bytes, prefix.data());
    row.prefix = prefix.data();
    row.from += bytes;
    return row;
  }
  KvCompactArgs Args(std::span<const KvCompactRow> rows) const {
    return {rows, c.kind, stride(), c.num_heads, c.num_kv_heads, c.head_dim, bits, 0, block_fill};
  }
  double Score(int64_t kv_head, int64_t token) const {
    double sum = 0;
    for (int64_t head = kv_head * c.group(); head < (kv_head + 1) * c.group(); ++head)
      sum += scores[static_cast<size_t>(head * stride() + token)];
    return std::isnan(sum) ? -1 : sum;
  }
  // The rule: a token between stays when fewer than `heavy` others there are before it.
  std::vector<int64_t> Kept(int64_t kv_head) const {
    KvKeep keep = c.keep;
    if (c.kind == KvPolicyKind::kH2oFlexgen && keep.heavy > 0) keep.heavy--, keep.recent++;
    std::vector<int64_t> kept;
    const int64_t first_seen = keep.window == 0 ? 0 : c.prompt + 1 - keep.window;
    const int64_t first = std::max(keep.sinks, first_seen);
    for (int64_t token = 0; token < c.prompt; ++token) {
      int64_t before = token < first ? keep.heavy : 0;
      for (int64_t other = first; other < c.prompt - keep.recent; ++other) {
        const double gap = Score(kv_head, other) - Score(kv_head, token);
        if (gap > 0 || (gap == 0 && other < token)) ++before;
      }
      const bool fixed = token < keep.sinks || token >= c.prompt - keep.recent;
      if (c.prompt <= keep.slots() || fixed || before < keep.heavy) kept.push_back(token);
    }
    return kept;
  }
};

void Compact(const KvCompactArgs& args, int64_t max_tokens, int num_threads) {
  AlignedBytes workspace(KvCompactWorkspaceBytes(max_tokens, num_threads));
  KvCompact(args, workspace.span(), PoolOf(num_threads));
}

void ExpectKept(Prompt& prompt, int64_t kv_head) {
  const BudgetCase& c = prompt.c;
  const std::vector<int64_t> kept = prompt.Kept(kv_head);
  ASSERT_EQ(static_cast<int64_t>(kept.size()), std::min(c.prompt, c.keep.slots()));
  const KvHead<std::byte> from{prompt.from.data(),
                               c.num_kv_heads,
                               c.head_dim,
                               kv_head,
                               KvBlockBytes(c.num_kv_heads, c.head_dim, prompt.bits),
                               prompt.bits};
  const KvHead<std::byte> to{prompt.to.data(), c.num_kv_heads,    c.head_dim,
                             kv_head,          prompt.to_block(), prompt.bits};
  const auto equal = [](const std::byte* a, const std::byte* b, int64_t bytes) {
    return std::equal(a, a + bytes, b);
  };
  for (size_t i = 0; i < kept.size(); ++i) {
    SCOPED_TRACE(CaseOf("KV head", kv_head, "token", kept[i]));
    const auto slot = static_cast<int64_t>(i);
    ASSERT_EQ(*to.Position(slot), kept[i]) << "KV head " << kv_head;
    const float score = *to.Score(slot);
    ASSERT_EQ(std::isnan(score) ? -1.0 : score, prompt.Score(kv_head, kept[i]));
    ASSERT_TRUE(equal(to.Key(slot), from.Key(kept[i]), to.KeyBytes()));
    ASSERT_TRUE(equal(to.Value(slot), from.Value(kept[i]), to.ValueBytes()));
    for (int64_t at = 0; at < to.NumKeyRanges() * kKvRangeStride; at += kKvRangeStride)
      ASSERT_TRUE(equal(to.KeyRanges(slot) + at, from.KeyRanges(kept[i]) + at, 4));
    for (int64_t at = 0; at < to.NumValueRanges() * kKvRangeStride; at += kKvRangeStride)
      ASSERT_TRUE(equal(to.ValueRanges(slot) + at, from.ValueRanges(kept[i]) + at, 4));
  }
}

BudgetCase RandomCase(std::mt19937& random) {
  constexpr int64_t kShapes[][3] = {{2, 2, 64}, {8, 2, 5}, {4, 1, 80}};
  constexpr KvPolicyKind kKinds[] = {KvPolicyKind::kH2o, KvPolicyKind::kWindow,
                                     KvPolicyKind::kH2oFlexgen};
  const auto& shape = kShapes[random() % 3];
  BudgetCase c{shape[0], shape[1], shape[2], kKinds[random() % 3], {}, 0, 0};
  const bool window = c.kind == KvPolicyKind::kWindow;
  c.keep.sinks = window ? random() % 4 : 0;
  c.keep.heavy = window || random() % 4 == 0 ? 0 : random() % 50;
  c.keep.recent = 1 + random() % 30;
  const int64_t slots = c.keep.slots();
  if (c.keep.sinks == 0 && random() % 2 == 0) c.keep.window = slots + 1 + random() % 40;
  const int64_t prompts[] = {1 + static_cast<int64_t>(random()) % slots, slots, slots + 1,
                             slots + 100};
  c.prompt = prompts[random() % 4];
  return c;
}

TEST(KvCompactTest, KeepsWhatTheRuleSays) {
  std::mt19937 random(3);
  for (uint32_t run = 0; run < 300; ++run) {
    Prompt prompt(RandomCase(random), run, 16 >> run % 3);
    SCOPED_TRACE(testing::PrintToString(prompt.c));
    // Some scores NaN: these go first.
    for (uint32_t i = 0; i < run % 20; ++i)
      prompt.scores[random() % prompt.scores.size()] = kPoison;
    AlignedBytes prefix(0);
    const KvCompactRow row =
        run % 2 == 0 ? prompt.Row(prompt.to) : prompt.RowBehind(prefix, prompt.to);
    Compact(prompt.Args({&row, 1}), prompt.c.prompt, 2);
    for (int64_t kv_head = 0; kv_head < prompt.c.num_kv_heads; ++kv_head)
      ASSERT_NO_FATAL_FAILURE(ExpectKept(prompt, kv_head));
  }
}

TEST(KvCompactTest, AgreesWithTheOracleToTheByte) {
  std::mt19937 random(4);
  for (uint32_t run = 0; run < 100; ++run) {
    Prompt prompt(RandomCase(random), run, 16 >> run % 3);
    SCOPED_TRACE(testing::PrintToString(prompt.c));
    AlignedBytes reference(static_cast<int64_t>(prompt.to.span().size()));
    AlignedBytes prefix(0);
    const bool apart = run % 2 == 1;
    const KvCompactRow row = apart ? prompt.RowBehind(prefix, prompt.to) : prompt.Row(prompt.to);
    AlignedBytes prefix_ref(0);
    const KvCompactRow row_ref =
        apart ? prompt.RowBehind(prefix_ref, reference) : prompt.Row(reference);
    Compact(prompt.Args({&row, 1}), prompt.c.prompt + 20, 1 + static_cast<int>(run % 3));
    KvCompactRef(prompt.Args({&row_ref, 1}));
    ASSERT_TRUE(std::ranges::equal(prompt.to.span(), reference.span()));
  }
}

TEST(KvCompactTest, RowsOfOneCallDoNotMix) {
  BudgetCase c{4, 2, 64, KvPolicyKind::kH2o, {0, 10, 10}, 90, 0};
  Prompt first(c, 1);
  Prompt second(c, 2);
  Prompt third(c, 3);
  second.c.keep = {0, 2, 5};
  const KvCompactRow rows[] = {first.Row(first.to), second.Row(second.to), third.Row(third.to)};
  Compact(first.Args(rows), 90, 4);
  for (Prompt* prompt : {&first, &second, &third}) {
    for (const int64_t kv_head : {0, 1}) ASSERT_NO_FATAL_FAILURE(ExpectKept(*prompt, kv_head));
  }
}

TEST(KvCompactTest, AWindowNeedsNoScores) {
  Prompt prompt({2, 2, 64, KvPolicyKind::kWindow, {3, 0, 20}, 70, 0}, 1);
  std::ranges::fill(prompt.scores, 0.0F);
  KvCompactRow row = prompt.Row(prompt.to);
  row.token_scores = nullptr;
  Compact(prompt.Args({&row, 1}), 70, 2);
  ASSERT_NO_FATAL_FAILURE(ExpectKept(prompt, 0));
}

}  // namespace
}  // namespace spillway::kernels
