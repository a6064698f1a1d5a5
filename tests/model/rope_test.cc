#include <gtest/gtest.h>

#include <utility>

#include "spillway/layer.h"

namespace spillway {
namespace {

// Values of transformers 5.24, in float32: [index, frequency].
using Expected = std::vector<std::pair<std::size_t, float>>;

void ExpectFrequencies(const Rope& rope, const Expected& expected) {
  const std::vector<float> found = InverseFrequencies(rope);
  ASSERT_EQ(std::ssize(found), rope.dims / 2);
  for (const auto& [index, value] : expected) EXPECT_FLOAT_EQ(found[index], value) << index;
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

}  // namespace
}  // namespace spillway
