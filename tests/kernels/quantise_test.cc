#include "kernels/convert/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/convert/convert_isa.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

static_assert(RowBytes(DType::kQ4, 128) * 8 == 128 * 9 / 2);   // 4.5 bits an element
static_assert(RowBytes(DType::kQ8, 128) * 8 == 128 * 17 / 2);  // 8.5
static_assert(RowBytes(DType::kQ4, 65) == 72);
static_assert(RowBytes(DType::kMxfp4, 65) == 72);

class QuantiseTest : public testing::TestWithParam<DType> {
 protected:
  static DType dtype() { return GetParam(); }
  static std::vector<std::byte> Quantised(const std::vector<uint16_t>& halfs) {
    std::vector<std::byte> row(
        static_cast<size_t>(RowBytes(dtype(), static_cast<int64_t>(halfs.size()))));
    QuantiseRow(halfs, dtype(), row);
    return row;
  }
  static std::vector<float> ThereAndBack(const std::vector<uint16_t>& halfs) {
    const std::vector<std::byte> row = Quantised(halfs);
    std::vector<float> floats(halfs.size());
    DequantiseRow(row.data(), dtype(), floats);
    return floats;
  }
};

INSTANTIATE_TEST_SUITE_P(Bits, QuantiseTest, testing::Values(DType::kQ8, DType::kQ4),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// What groups of all types have in common.
class CodesTest : public QuantiseTest {};
INSTANTIATE_TEST_SUITE_P(Bits, CodesTest, testing::Values(DType::kQ8, DType::kQ4, DType::kMxfp4),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

std::vector<uint16_t> Halfs(const std::vector<float>& floats) {
  std::vector<uint16_t> halfs;
  for (const float value : floats) halfs.push_back(FloatToHalf(value));
  return halfs;
}

// quantise.h's bound, group by group.
void ExpectWithinBound(const std::vector<uint16_t>& halfs, const std::vector<float>& back,
                       DType dtype) {
  for (size_t begin = 0; begin < halfs.size(); begin += 64) {
    const size_t end = std::min(halfs.size(), begin + 64);
    float low = INFINITY;
    float high = -INFINITY;
    for (size_t k = begin; k < end; ++k) {
      low = std::min(low, HalfToFloat(halfs[k]));
      high = std::max(high, HalfToFloat(halfs[k]));
    }
    const float exact = (high - low) / static_cast<float>(MaxCode(dtype));
    const float step = exact * (1 + 0x1p-10F) + (exact > 0x1p-14F || exact == 0 ? 0 : 0x1p-24F);
    for (size_t k = begin; k < end; ++k) {
      const float weight = HalfToFloat(halfs[k]);
      ASSERT_TRUE(std::isfinite(back[k])) << k;
      ASSERT_LE(std::abs(back[k] - weight),
                0.501F * step + 0x1p-24F * std::max(std::abs(low), std::abs(high)))
          << k << " of range " << low << " to " << high;
    }
  }
}

TEST_P(QuantiseTest, EveryWeightComesBackWithinTheBound) {
  uint32_t seed = 0;
  for (const float scale : {1e-8F, 1e-7F, 3e-6F, 1e-5F, 2e-4F, 1e-3F, 0.02F, 1.0F, 300.0F, 1e4F}) {
    for (const float offset : {0.0F, 1e-6F, -0.01F, 0.5F, -3000.0F}) {
      for (const int64_t cols : {1, 2, 63, 64, 65, 100, 128, 200, 768}) {
        std::vector<float> weights = RandomFloats(cols, ++seed, scale);
        for (float& weight : weights) weight = std::clamp(weight + offset, -65504.0F, 65504.0F);
        const std::vector<uint16_t> halfs = Halfs(weights);
        ExpectWithinBound(halfs, ThereAndBack(halfs), dtype());
      }
    }
  }
}

TEST_P(QuantiseTest, GroupsOfOneValueAreExact) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    const std::vector<uint16_t> halfs(bits % 64 + 1, static_cast<uint16_t>(bits));
    for (const float back : ThereAndBack(halfs)) ASSERT_EQ(back, value) << bits;
  }
}

// FlexGen's scale, MaxCode / range, leaves fp16 at a range of 2.3e-4.
TEST_P(QuantiseTest, TinyRangesOfDenormalsAreExact) {
  for (int range = 1; range <= MaxCode(dtype()); ++range) {
    std::vector<uint16_t> halfs(64, 0x8000);
    for (size_t k = 0; k < 64; ++k) {
      halfs[k] = static_cast<uint16_t>(static_cast<int>(k) * 37 % (range + 1));
    }
    halfs[5] = 0;
    halfs[9] = static_cast<uint16_t>(range);
    const std::vector<float> back = ThereAndBack(halfs);
    for (size_t k = 0; k < 64; ++k) ASSERT_EQ(back[k], HalfToFloat(halfs[k])) << range;
  }
}

// Steps that are rounded up take the last code's worth beyond fp16 here.
TEST_P(QuantiseTest, RangesThatEndAtTheLargestHalfAreFinite) {
  for (uint32_t low = 0; low < 0x10000; low += 13) {
    const float lowest = HalfToFloat(static_cast<uint16_t>(low));
    if (!std::isfinite(lowest)) continue;
    std::vector<uint16_t> halfs(64, 0x7BFF);
    for (size_t k = 0; k < 60; ++k) {
      halfs[k] = FloatToHalf(lowest + (65504.0F - lowest) * static_cast<float>(k) / 60);
    }
    ExpectWithinBound(halfs, ThereAndBack(halfs), dtype());
    ASSERT_EQ(FindNonFiniteGroup(Quantised(halfs), dtype()), -1) << lowest;
  }
}

TEST_P(QuantiseTest, CodesBehindTheLastWeightAreZero) {
  for (size_t count = 1; count < 64; count += 7) {
    const std::vector<std::byte> row =
        Quantised(Halfs(RandomFloats(static_cast<int64_t>(count), 5)));
    std::vector<float> group(64);
    DequantiseRow(row.data(), dtype(), group);
    uint16_t minimum = 0;
    std::memcpy(&minimum, row.data(), sizeof(minimum));
    for (size_t k = count; k < 64; ++k) EXPECT_EQ(group[k], HalfToFloat(minimum)) << count;
  }
}

TEST_P(CodesTest, EveryInstructionSetGivesTheSameBits) {
  std::vector<const ConvertFunctions*> all = {&kConvertPortable};
#if defined(__x86_64__)
  for (const Isa isa : SupportedIsas()) {
    if (isa == Isa::kAvx2) all.push_back(&kConvertAvx2);
    if (isa == Isa::kAvx512) all.push_back(&kConvertAvx512);
  }
#endif
  uint32_t seed = 100;
  for (const float scale : {1e-7F, 1e-4F, 0.05F, 700.0F}) {
    for (const int64_t cols : {1, 17, 64, 130, 320}) {
      SCOPED_TRACE(CaseOf("scale", scale, "cols", cols));
      const std::vector<uint16_t> halfs = Halfs(RandomFloats(cols, ++seed, scale));
      const std::vector<std::byte> expected = Quantised(halfs);
      std::vector<float> worth;
      for (int64_t k = 0; k < cols; ++k) {
        worth.push_back(DequantiseRef(expected.data(), dtype(), k));
      }
      for (size_t set = 0; set < all.size(); ++set) {
        SCOPED_TRACE(CaseOf("instruction set", set));
        std::vector<std::byte> row(expected.size());
        all[set]->quantise(halfs.data(), cols, dtype(), row.data());
        EXPECT_EQ(row, expected);
        std::vector<float> floats(worth.size() + 1, kPoison);
        all[set]->dequantise(expected.data(), dtype(), floats.data(), cols);
        EXPECT_TRUE(std::isnan(floats.back()));
        floats.pop_back();
        EXPECT_EQ(Bits(floats), Bits(worth));
      }
    }
  }
}

// Any bytes are some weights: also steps and minima that no quantiser makes.
TEST_P(CodesTest, EveryInstructionSetReadsAnyGroupAlike) {
  std::mt19937 random(7);
  std::vector<std::byte> row(static_cast<size_t>(GroupBytes(dtype())) * 200);
  for (std::byte& byte : row) byte = static_cast<std::byte>(random());
  const auto count = static_cast<int64_t>(200 * 64);
  std::vector<float> portable(static_cast<size_t>(count));
  kConvertPortable.dequantise(row.data(), dtype(), portable.data(), count);
  std::vector<float> best(portable.size());
  DequantiseRow(row.data(), dtype(), best);
  for (size_t k = 0; k < portable.size(); ++k) {
    const float expected = DequantiseRef(row.data(), dtype(), static_cast<int64_t>(k));
    if (std::isnan(expected)) continue;
    EXPECT_EQ(portable[k], expected) << k;
    EXPECT_EQ(best[k], expected) << k;
  }
}

TEST_P(CodesTest, FindsGroupsThatAreNotFinite) {
  const std::vector<std::byte> good = Quantised(Halfs(RandomFloats(256, 9)));
  EXPECT_EQ(FindNonFiniteGroup(good, dtype()), -1);
  const auto group = static_cast<size_t>(GroupBytes(dtype()));
  for (const uint16_t bad : {uint16_t{0x7C00}, uint16_t{0xFE00}}) {
    for (const size_t at : {size_t{0}, sizeof(uint16_t)}) {
      std::vector<std::byte> row = good;
      std::memcpy(row.data() + 2 * group + at, &bad, sizeof(bad));
      EXPECT_EQ(FindNonFiniteGroup(row, dtype()), 2) << bad << " at " << at;
    }
  }
}

std::vector<float> ThroughMxfp4(const std::vector<uint16_t>& halfs) {
  const auto count = static_cast<int64_t>(halfs.size());
  std::vector<std::byte> row(static_cast<size_t>(RowBytes(DType::kMxfp4, count)));
  QuantiseRow(halfs, DType::kMxfp4, row);
  std::vector<float> floats(halfs.size());
  DequantiseRow(row.data(), DType::kMxfp4, floats);
  for (int64_t k = 0; k < count; ++k)
    EXPECT_EQ(DequantiseRef(row.data(), DType::kMxfp4, k), floats[static_cast<size_t>(k)]);
  return floats;
}

// Runs of 32 under a scale of their own, whichever numbers they have.
TEST(Mxfp4Test, NumbersUnderAnyScaleComeBackExactly) {
  std::minstd_rand random(3);
  for (const int64_t cols : {1, 31, 32, 33, 63, 64, 65, 100, 320}) {
    for (int exponent = -23; exponent <= 13; ++exponent) {
      const auto largest = static_cast<int>(random() % 8);  // code of a run's largest number
      std::vector<uint16_t> halfs;
      std::vector<float> expected;
      for (int64_t k = 0; k < cols; ++k) {
        const int scale = k / 32 % 2 == 0 ? exponent : -exponent / 2;
        const auto code = static_cast<int>(random() % static_cast<unsigned>(largest + 1)) +
                          8 * static_cast<int>(random() % 2);
        expected.push_back(std::ldexp(0.5F * static_cast<float>(kFp4Doubles[code]), scale));
        halfs.push_back(FloatToHalf(expected.back()));
        ASSERT_EQ(HalfToFloat(halfs.back()), expected.back());
      }
      ASSERT_EQ(ThroughMxfp4(halfs), expected) << cols << " under 2^" << exponent;
    }
  }
}

TEST(Mxfp4Test, OtherValuesBecomeTheNearestNumbers) {
  for (const float scale : {1e-7F, 1e-4F, 0.02F, 1.0F, 9000.0F}) {
    const std::vector<uint16_t> halfs = Halfs(RandomFloats(320, 5, scale));
    const std::vector<float> back = ThroughMxfp4(halfs);
    for (size_t begin = 0; begin < halfs.size(); begin += 32) {
      float largest = 0.0F;
      for (size_t k = begin; k < begin + 32; ++k)
        largest = std::max(largest, std::abs(HalfToFloat(halfs[k])));
      const float unit = std::max(0x1p-24F, std::exp2(std::floor(std::log2(largest)) - 2.0F));
      for (size_t k = begin; k < begin + 32; ++k) {
        float nearest = INFINITY;
        for (const int doubles : kFp4Doubles) {
          nearest = std::min(
              nearest, std::abs(0.5F * static_cast<float>(doubles) * unit - HalfToFloat(halfs[k])));
        }
        ASSERT_EQ(std::abs(back[k] - HalfToFloat(halfs[k])), nearest) << k;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
