#include <gtest/gtest.h>

#include <utility>

#include "spillway/layer.h"

namespace spillway {
namespace {

// Values of transformers 5.24, in float32: [index, frequency].
using Expected = std::vector<std::pair<std::size_t, float>>;

void ExpectFrequencies(const Rope& rope, const Expected& expected, int64_t length = 0) {
  const std::vector<float> found = InverseFrequencies(rope, length);
  ASSERT_EQ(std::ssize(found), rope.dims / 2);
  for (const auto& [index, value] : expected) EXPECT_FLOAT_EQ(found[index], value) << index;
}

Rope Scaled(Rope rope, RopeScalingKind kind, double factor, int64_t original_positions) {
  rope.scaling.kind = kind;
  rope.scaling.factor = factor;
  rope.scaling.original_positions = original_positions;
  return rope;
}

TEST(RopeTest, FrequenciesArePowersOfTheta) {
  ExpectFrequencies({10000.0, 64}, {{0, 1.0F},
                                    {1, 0.7498942017555237F},
                                    {17, 0.007498942315578461F},
                                    {31, 0.0001333521504420787F}});
}

TEST(RopeTest, LinearScalingDividesAll) {
  ExpectFrequencies({10000.0, 64, RopePairs::kHalves, {RopeScalingKind::kLinear, 4.0}},
                    {{0, 0.25F}, {1, 0.18747355043888092F}, {31, 3.333803761051968e-05F}});
}

// Waves shorter than a quarter of the original context stay, those longer than it are stretched.
TEST(RopeTest, Llama3ScalingStretchesLongWaves) {
  ExpectFrequencies(
      {500000.0, 128, RopePairs::kHalves, {RopeScalingKind::kLlama3, 8.0, 1.0, 4.0, 8192}},
      {{0, 1.0F},
       {17, 0.030634520575404167F},
       {28, 0.0032114461064338684F},
       {30, 0.0013718936825171113F},
       {35, 9.556212171446532e-05F},
       {63, 3.068925877869333e-07F}});
}

// Qwen 2.5's setting.
TEST(RopeTest, YarnStretchesWhatTurnsSeldom) {
  Rope rope = Scaled({1e6, 128}, RopeScalingKind::kYarn, 4.0, 32768);
  ExpectFrequencies(rope, {{0, 1.0F},
                           {10, 0.11547820270061493F},
                           {23, 0.006978305988013744F},
                           {30, 0.0010643609566614032F},
                           {40, 4.4456985051510856e-05F},
                           {63, 3.102344408034696e-07F}});
}

// The setting of gpt-oss, whose bounds are between pairs.
TEST(RopeTest, YarnBetweenPairs) {
  Rope rope = Scaled({150000.0, 64}, RopeScalingKind::kYarn, 32.0, 4096);
  rope.scaling.whole_pairs = false;
  ExpectFrequencies(rope, {{0, 1.0F},
                           {8, 0.05081327259540558F},
                           {10, 0.019334999844431877F},
                           {14, 0.002093792660161853F},
                           {18, 3.830881178146228e-05F},
                           {31, 3.023511396804679e-07F}});
}

TEST(RopeTest, YarnWithOtherBounds) {
  Rope rope = Scaled({10000.0, 64}, RopeScalingKind::kYarn, 40.0, 4096);
  rope.scaling.fast_turns = 16.0;
  rope.scaling.slow_turns = 2.0;
  ExpectFrequencies(rope, {{8, 0.10000000149011612F},
                           {12, 0.03162277862429619F},
                           {16, 0.00566666666418314F},
                           {20, 0.00042163702892139554F},
                           {31, 3.3338035336782923e-06F}});
}

TEST(RopeTest, DynamicScalingGrowsWithTheRow) {
  Rope rope = Scaled({10000.0, 64}, RopeScalingKind::kDynamic, 2.0, 4096);
  EXPECT_TRUE(rope.scaling.depends_on_length());
  EXPECT_EQ(InverseFrequencies(rope, 4096), InverseFrequencies({10000.0, 64}));
  ExpectFrequencies(rope, {{1, 0.7498824000358582F}, {31, 0.00013328705972526222F}}, 4097);
  ExpectFrequencies(rope, {{17, 0.004105375614017248F}, {31, 4.445071317604743e-05F}}, 8192);
  ExpectFrequencies(rope, {{1, 0.704269289970398F}, {31, 1.9050306946155615e-05F}}, 16384);
}

TEST(RopeTest, LongRowsHaveFactorsOfTheirOwn) {
  Rope rope = {10000.0, 24};
  rope.scaling.kind = RopeScalingKind::kLong;
  rope.scaling.original_positions = 4096;
  for (int pair = 0; pair < 12; ++pair) {
    rope.scaling.short_factors.push_back(1.0 + 0.05 * pair);
    rope.scaling.long_factors.push_back(1.0 + 0.5 * pair);
  }
  EXPECT_TRUE(rope.scaling.depends_on_length());
  const Expected of_short = {
      {1, 0.4420561194419861F}, {5, 0.01723547838628292F}, {11, 0.0001389957615174353F}};
  ExpectFrequencies(rope, of_short);
  ExpectFrequencies(rope, of_short, 4096);
  ExpectFrequencies(
      rope, {{1, 0.3094392716884613F}, {5, 0.006155528128147125F}, {11, 3.3145141060231254e-05F}},
      4097);
}

}  // namespace
}  // namespace spillway
