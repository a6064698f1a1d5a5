// Tokens that a row keeps: halves, odd numbers, shares of its own length, parts set apart, per
// layer.
#include "spillway/kv_policy.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

KvPolicy Kept(KvPolicyKind kind, TokenAmount kept) {
  KvPolicy policy;
  policy.kind = kind;
  policy.budget.kept = kept;
  return policy;
}

TEST(KvPolicy, FullKeepsTheRow) { EXPECT_EQ(KeepOf(KvPolicy{}, 3, 544), (KvKeep{0, 0, 544})); }

TEST(KvPolicy, TwentyPercentOfTheRowHalfHeavyTheOddOneRecent) {
  const KvPolicy policy = Kept(KvPolicyKind::kH2o, {0.2, 0});
  EXPECT_EQ(KeepOf(policy, 0, 544), (KvKeep{0, 54, 55}));  // ceil(108.8) = 109
  EXPECT_EQ(KeepOf(policy, 0, 5), (KvKeep{0, 0, 1}));      // 0.2 * 5 is one token, not two
  EXPECT_EQ(KeepOf(policy, 0, 640), (KvKeep{0, 64, 64}));
}

TEST(KvPolicy, ANumberOfTokensIsTheSameForEveryRow) {
  const KvPolicy policy = Kept(KvPolicyKind::kH2o, {0.0, 7});
  EXPECT_EQ(KeepOf(policy, 0, 10), (KvKeep{0, 3, 4}));
  EXPECT_EQ(KeepOf(policy, 0, 2000), (KvKeep{0, 3, 4}));
}

TEST(KvPolicy, AWindowIsAllRecentAfterItsSinks) {
  KvPolicy policy = Kept(KvPolicyKind::kWindow, {0.0, 20});
  EXPECT_EQ(KeepOf(policy, 0, 100), (KvKeep{0, 0, 20}));
  policy.num_sinks = 4;
  EXPECT_EQ(KeepOf(policy, 0, 100), (KvKeep{4, 0, 16}));
}

TEST(KvPolicy, PartsSetApart) {
  KvPolicy policy = Kept(KvPolicyKind::kH2o, {0.2, 0});
  policy.budget.heavy = TokenAmount{0.0, 0};
  policy.budget.recent = TokenAmount{0.0, 1};
  EXPECT_EQ(KeepOf(policy, 0, 100), (KvKeep{0, 0, 1}));
  policy.budget.recent.reset();
  EXPECT_EQ(KeepOf(policy, 0, 100), (KvKeep{0, 0, 20}));
  policy.budget.heavy.reset();
  policy.budget.recent = TokenAmount{0.05, 0};
  EXPECT_EQ(KeepOf(policy, 0, 100), (KvKeep{0, 15, 5}));
}

TEST(KvPolicy, LayersMayDiffer) {
  KvPolicy policy = Kept(KvPolicyKind::kH2o, {0.2, 0});
  policy.layer_budgets = {{{0.5, 0}, {}, {}}, {{0.0, 8}, {}, {}}};
  EXPECT_EQ(KeepOf(policy, 0, 100).slots(), 50);
  EXPECT_EQ(KeepOf(policy, 1, 100).slots(), 8);
}

TEST(KvPolicy, ARowMayKeepLessInOnePlace) {
  KvPolicy policy = Kept(KvPolicyKind::kH2o, {1.0, 0});
  policy.layer_windows = {0, 41};
  const KvLess head = {0, 2, 0.2};
  EXPECT_EQ(KeepOf(policy, {0, 2}, 100, head), (KvKeep{0, 10, 10}));
  EXPECT_EQ(KeepOf(policy, {0, 1}, 100, head), KeepOf(policy, {0, 1}, 100));
  EXPECT_EQ(KeepOf(policy, {1, 2}, 100, head), KeepOf(policy, {1, 2}, 100));
  const KvLess layer = {1, -1, 0.2};
  EXPECT_EQ(KeepOf(policy, {1, 0}, 100, layer), (KvKeep{0, 10, 10, 41}));
  EXPECT_EQ(KeepOf(policy, {1, 7}, 100, {1, -1, 0.5}), (KvKeep{0, 0, 40, 41}));
  EXPECT_EQ(KeepOf(policy, {0, 0}, 100, layer), KeepOf(policy, {0, 0}, 100));
  EXPECT_EQ(KeepOf(policy, {0, 0}, 100, KvLess{}), KeepOf(policy, {0, 0}, 100));
}

TEST(KvPolicy, AWindowThatNoRowOutgrowsChangesNothing) {
  const KvPolicy policy = WithWindows({}, {0, 100}, 100);
  EXPECT_FALSE(policy.evicts());
  EXPECT_TRUE(policy.layer_windows.empty());
}

TEST(KvPolicy, ALayerKeepsWhatTheNextTokenOfItsWindowSees) {
  const KvPolicy policy = WithWindows({}, {0, 100}, 101);
  EXPECT_EQ(KeepOf(policy, 0, 101), (KvKeep{0, 0, 101}));
  EXPECT_EQ(KeepOf(policy, 1, 101), (KvKeep{0, 0, 99, 100}));
  EXPECT_EQ(KeepOf(policy, 1, 100), (KvKeep{0, 0, 100})) << "a shorter row beside it keeps all";
}

TEST(KvPolicy, ABudgetWithinTheWindowStays) {
  const KvPolicy policy = WithWindows(Kept(KvPolicyKind::kH2o, {0.5, 0}), {0, 100, 40}, 120);
  EXPECT_EQ(KeepOf(policy, 0, 120), (KvKeep{0, 30, 30}));
  EXPECT_EQ(KeepOf(policy, 1, 120), (KvKeep{0, 30, 30, 100}));
  EXPECT_EQ(KeepOf(policy, 2, 120), (KvKeep{0, 0, 39, 40})) << "the window's most recent tokens";
}

TEST(KvPolicy, ALayerWithAWindowHasNoSinks) {
  KvPolicy sinks = Kept(KvPolicyKind::kWindow, {0.0, 20});
  sinks.num_sinks = 4;
  const KvPolicy policy = WithWindows(sinks, {0, 100}, 200);
  EXPECT_EQ(KeepOf(policy, 0, 200), (KvKeep{4, 0, 16}));
  EXPECT_EQ(KeepOf(policy, 1, 200), (KvKeep{0, 0, 20, 100}));
}

TEST(ChangedSlots, APromptAndScoresChangeAllThatIsHeld) {
  EXPECT_EQ(ChangedSlots(KvPolicyKind::kWindow, {0, 0, 20}, {30, 0, 30}), (SlotRange{0, 20}));
  EXPECT_EQ(ChangedSlots(KvPolicyKind::kFull, {0, 0, 60}, {30, 0, 30}), (SlotRange{0, 30}));
  EXPECT_EQ(ChangedSlots(KvPolicyKind::kH2o, {0, 10, 10}, {30, 35, 1}), (SlotRange{0, 20}));
}

TEST(ChangedSlots, WhatFitsGoesBehindTheRest) {
  EXPECT_EQ(ChangedSlots(KvPolicyKind::kFull, {0, 0, 60}, {30, 31, 1}), (SlotRange{31, 32}));
  EXPECT_EQ(ChangedSlots(KvPolicyKind::kWindow, {0, 0, 60}, {30, 59, 1}), (SlotRange{59, 60}));
}

TEST(ChangedSlots, ANewTokenTakesTheSlotOfTheOldestThatIsNoSink) {
  const auto slot_of = [](int64_t prompt, int64_t position) {
    return ChangedSlots(KvPolicyKind::kWindow, {4, 0, 6}, {prompt, position, 1}).begin;
  };
  EXPECT_EQ(slot_of(3, 9), 9) << "the last free one";
  EXPECT_EQ(slot_of(3, 10), 4);
  EXPECT_EQ(slot_of(3, 15), 9);
  EXPECT_EQ(slot_of(3, 16), 4);
  EXPECT_EQ(slot_of(33, 33), 4) << "prompts are compacted in order";
  EXPECT_EQ(slot_of(33, 40), 5);
}

TEST(KvPolicy, OneRecentTokenIsTheLeast) {
  EXPECT_EQ(KeepOf(Kept(KvPolicyKind::kH2o, {1e-6, 0}), 0, 1).recent, 1);
}

}  // namespace
}  // namespace spillway
