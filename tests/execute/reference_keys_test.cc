#include "src/execute/reference_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/head_reflection.h"

namespace spillway {
namespace {

constexpr int64_t kWidth = 2 * 64;  // of two KV heads

Plan PlanWith(int kv_bits) {
  Plan plan;
  plan.shape.num_layers = 2;
  plan.shape.hidden_size = kWidth;
  plan.shape.num_heads = plan.shape.num_kv_heads = 2;
  plan.shape.head_dim = 64;
  plan.shape.vocab_size = 100;
  plan.shape.max_positions = 10;
  plan.shape.bos = 3;
  plan.policy.kv_bits = kv_bits;
  return plan;
}

PlannedLayer LayerOf(LayerKind kind, int64_t block) {
  PlannedLayer layer;
  layer.kind = kind;
  layer.block = block;
  return layer;
}

TEST(ReferenceKeysTest, SixteenBitsNeedNone) {
  const Plan plan = PlanWith(16);
  EXPECT_FALSE(ReferenceKeys(plan).Awaits(0));
}

TEST(ReferenceKeysTest, AwaitsEachLayerOnceInTheirOrder) {
  const Plan plan = PlanWith(4);
  ReferenceKeys keys(plan);
  EXPECT_TRUE(keys.Awaits(0));
  EXPECT_FALSE(keys.Awaits(1));
  keys.Finish(LayerOf(LayerKind::kEmbedding, -1));
  EXPECT_FALSE(keys.Awaits(0));
  EXPECT_TRUE(keys.Awaits(1));
}

TEST(ReferenceKeysTest, IsAPromptThatTheModelCanTake) {
  const Plan plan = PlanWith(4);
  const ReferenceKeys keys(plan);
  EXPECT_EQ(keys.num_tokens(), 10);
  EXPECT_EQ(keys.Tokens(0, 10).front(), 3);
  for (const TokenId token : keys.Tokens(0, 10)) EXPECT_LT(token, 100);
  EXPECT_EQ(keys.Positions(4, 2).back(), 5);
  EXPECT_LE(keys.num_tokens(), keys.Row(0, 10).num_slots);
}

// A long key's direction counts as much as a short one's, in whatever chunks they come; and each
// layer has its own.
TEST(ReferenceKeysTest, ReflectsTheMeanDirection) {
  const Plan plan = PlanWith(4);
  ReferenceKeys keys(plan);
  std::vector<float> rows(3 * kWidth, 0.0F);
  rows[0] = 50.0F;  // token 0 along dimension 0, head 1 along dimension 2
  rows[64 + 2] = 2.0F;
  rows[kWidth + 1] = 1.0F;  // token 1 along dimension 1
  rows[kWidth + 64 + 2] = 1.0F;
  rows[2 * kWidth + 5] = 1.0F;  // of the next layer
  keys.AddKeys(rows.data(), kWidth, 1);
  keys.AddKeys(rows.data() + kWidth, kWidth, 1);
  keys.Finish(LayerOf(LayerKind::kAttention, 0));
  keys.AddKeys(rows.data() + 2 * kWidth, kWidth, 1);
  keys.Finish(LayerOf(LayerKind::kAttention, 1));
  const auto expect = [](const std::vector<int64_t>& along, const float* reflector) {
    std::vector<double> common(64, 0.0);
    for (const int64_t d : along) common[static_cast<std::size_t>(d)] = 1.0;
    std::vector<float> expected(64);
    kernels::MakeReflector(common.data(), 64, expected.data());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), reflector));
  };
  expect({0, 1}, keys.Reflectors(0));
  expect({2}, keys.Reflectors(0) + 64);
  expect({5}, keys.Reflectors(1));
  expect({}, keys.Reflectors(1) + 64);
}

}  // namespace
}  // namespace spillway
