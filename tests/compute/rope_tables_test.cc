#include "src/compute/rope_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/plan_builder.h"

namespace spillway {
namespace {

constexpr int64_t kOriginal = 10;
constexpr std::size_t kPairs = 3;

Rope RopeOf(RopeScalingKind kind) {
  Rope rope = {100.0, 2 * kPairs};
  rope.scaling.kind = kind;
  rope.scaling.factor = 3.0;
  rope.scaling.original_positions = kOriginal;
  rope.scaling.short_factors = {1.0, 1.5, 2.0};
  rope.scaling.long_factors = {4.0, 5.0, 6.0};
  return rope;
}

// Two batches of up to three rows; the first attention layer turns.
Plan PlanWith(const Rope& rope) {
  Plan plan = PlanBuilder(TinyShape(1)).Batches({3, 60, 40, 3}, 2).Build();
  plan.layers[1].ops = {Rotate{{Buf::kQkv}, 2, rope}};
  return plan;
}

// Rows that may come to have so many tokens each, and that feed two tokens each.
PackedBatch BatchOf(int64_t number, const std::vector<int64_t>& lengths) {
  PackedBatch batch;
  batch.batch = number;
  for (const int64_t length : lengths) {
    PackedRow row;
    row.num_new = 2;
    row.most_tokens = length;
    batch.rows.push_back(row);
  }
  return batch;
}

// Frequencies by which a token turns.
std::vector<float> OfToken(const Turns& turns, std::size_t token) {
  const auto table = turns.tables.empty() ? 0 : static_cast<std::size_t>(turns.tables[token]);
  const auto part = turns.frequencies.subspan(table * kPairs, kPairs);
  return {part.begin(), part.end()};
}

TEST(RopeTablesTest, OneTableServesAllWhereLengthDoesNotCount) {
  const Rope rope = RopeOf(RopeScalingKind::kLinear);
  const Plan plan = PlanWith(rope);
  RopeTables tables(plan);
  const Turns turns = tables.For(plan.layers[1], BatchOf(0, {5, 50}));
  EXPECT_TRUE(turns.tables.empty());
  EXPECT_EQ(OfToken(turns, 3), InverseFrequencies(rope));
  EXPECT_TRUE(tables.For(plan.layers[2], BatchOf(0, {5, 50})).frequencies.empty());
  EXPECT_EQ(RopeTables::MaxTables(plan, rope), 1);
  EXPECT_EQ(RopeTables::MaxTokens(plan, rope), 0);
}

// Whatever rows are beside it and were there before.
TEST(RopeTablesTest, ARowTurnsByItsOwnLength) {
  for (const RopeScalingKind kind : {RopeScalingKind::kLong, RopeScalingKind::kDynamic}) {
    const Rope rope = RopeOf(kind);
    const Plan plan = PlanWith(rope);
    RopeTables tables(plan);
    const std::vector<std::pair<int64_t, std::vector<int64_t>>> batches = {
        {0, {10, 11, 30}}, {1, {40, 3, 12}}, {0, {11, 30}}, {0, {30, 7, 45}}, {1, {40, 3, 12}}};
    for (const auto& [number, lengths] : batches) {
      const Turns turns = tables.For(plan.layers[1], BatchOf(number, lengths));
      ASSERT_EQ(turns.tables.size(), 2 * lengths.size());
      for (std::size_t token = 0; token < turns.tables.size(); ++token) {
        EXPECT_EQ(OfToken(turns, token), InverseFrequencies(rope, lengths[token / 2])) << token;
      }
      const auto num_tables = static_cast<int64_t>(turns.frequencies.size() / kPairs);
      EXPECT_LE(num_tables, RopeTables::MaxTables(plan, rope));
      EXPECT_LE(std::ssize(turns.tables), RopeTables::MaxTokens(plan, rope));
    }
    EXPECT_NE(InverseFrequencies(rope, kOriginal), InverseFrequencies(rope, kOriginal + 1));
  }
}

}  // namespace
}  // namespace spillway
