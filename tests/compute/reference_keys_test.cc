#include "src/compute/reference_keys.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "spillway/kv_block.h"
#include "tests/plan_builder.h"

namespace spillway {
namespace {

constexpr int64_t kWidth = 2 * 64;  // of two KV heads

Plan PlanWith(KvBits kv_bits) {
  ModelShape shape;
  shape.num_layers = 2;
  shape.hidden_size = kWidth;
  shape.num_heads = shape.num_kv_heads = 2;
  shape.head_dim = 64;
  shape.vocab_size = 100;
  shape.max_positions = 10;
  shape.bos = 3;
  return PlanBuilder(shape).WithKvBits(kv_bits).Build();
}

TEST(ReferenceKeysTest, SixteenBitsNeedNone) {
  const Plan plan = PlanWith(16);
  EXPECT_EQ(ReferenceKeys::Bytes(plan), 0);
  EXPECT_FALSE(ReferenceKeys(plan, nullptr).Awaits(0));
}

TEST(ReferenceKeysTest, AwaitsEachLayerOnceInTheirOrder) {
  const Plan plan = PlanWith(4);
  ReferenceKeys keys(plan, nullptr);
  EXPECT_TRUE(keys.Awaits(0));
  EXPECT_FALSE(keys.Awaits(1));
  keys.Advance();
  EXPECT_FALSE(keys.Awaits(0));
  EXPECT_TRUE(keys.Awaits(1));
}

// The first token's key is like no other, and is left out.
TEST(ReferenceKeysTest, SumsAllKeysButTheFirst) {
  const Plan plan = PlanWith(4);
  std::vector<std::byte> memory(static_cast<std::size_t>(ReferenceKeys::Bytes(plan)));
  const ReferenceKeys keys(plan, memory.data());
  const std::vector<float> of_chunk(10 * kWidth);
  kernels::AttentionTensors chunk;
  chunk.k = of_chunk.data();
  chunk.qkv_stride = kWidth;
  for (const auto& [begin, rows, first, summed] :
       {std::array{0, 10, 1, 9}, std::array{0, 1, 1, 0}, std::array{4, 6, 4, 6}}) {
    const kernels::KeySumArgs sums = keys.KeySums(chunk, Rope{}, nullptr, {begin, begin + rows});
    EXPECT_EQ(sums.first_position, first);
    EXPECT_EQ(sums.rows, summed);
    EXPECT_EQ(sums.keys, of_chunk.data() + (first - begin) * kWidth);
    EXPECT_EQ(sums.sums, keys.Common());
  }
  EXPECT_EQ(keys.MeanArgsOf(1).num_keys, 9);
  EXPECT_EQ(keys.MeanArgsOf(1).means, keys.Found(1));
}

TEST(ReferenceKeysTest, IsAPromptThatTheModelCanTake) {
  const Plan plan = PlanWith(4);
  const ReferenceKeys keys(plan, nullptr);
  EXPECT_EQ(keys.num_tokens(), 10);
  EXPECT_EQ(keys.tokens().front(), 3);
  for (const TokenId token : keys.tokens()) EXPECT_LT(token, 100);
  EXPECT_EQ(keys.positions()[5], 5);
  EXPECT_LE(keys.num_tokens(), keys.Row(0, 10).num_slots);
}

// KV, states, directions and reflectors follow one another, and end where Bytes says.
TEST(ReferenceKeysTest, PlacesDoNotOverlap) {
  const Plan plan = PlanWith(4);
  std::vector<std::byte> memory(static_cast<std::size_t>(ReferenceKeys::Bytes(plan)));
  const ReferenceKeys keys(plan, memory.data());
  const auto at = [&](const void* place) {
    return static_cast<const std::byte*>(place) - memory.data();
  };
  EXPECT_EQ(at(keys.Row(0, 10).kv), 0);
  EXPECT_EQ(at(keys.Hidden()), keys.Row(0, 10).num_slots * KvSlotBytes(2, 64));
  EXPECT_GE(at(keys.Common()), at(keys.Hidden() + 10 * plan.shape.hidden_size));
  EXPECT_EQ(at(keys.Common()) % int64_t{sizeof(double)}, 0);
  EXPECT_EQ(at(keys.Found(0)), at(keys.Common() + kWidth));
  EXPECT_EQ(at(keys.Found(2)), std::ssize(memory));
}

}  // namespace
}  // namespace spillway
