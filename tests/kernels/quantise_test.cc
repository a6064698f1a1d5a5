#include "kernels/convert/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
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
INSTANTIATE_TEST_SUITE_P(Bits, CodesTest,
                         testing::Values(DType::kQ8, DType::kQ4, DType::kMxfp4, DType::kInt8,
                                         DType::kInt4, DType::kFp8, DType::kGgufQ8, DType::kGgufQ4,
                                         DType::kGgufM4, DType::kGgufK4, DType::kGgufK6),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// True for types whose groups have one scale of more than 16 bits.
bool HasWideScale(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt4 || dtype == DType::kFp8;
}

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
  if (HasWideScale(dtype())) {  // 255 times the scale is a float too
    for (size_t at = 3; at < row.size(); at += static_cast<size_t>(GroupBytes(dtype())))
      row[at] &= std::byte{0x3F};
  }
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
  if (HasWideScale(dtype())) {
    for (const uint32_t bad : {0x7F800000U, 0xFFC00000U}) {
      std::vector<std::byte> row = good;
      std::memcpy(row.data() + 2 * group, &bad, sizeof(bad));
      EXPECT_EQ(FindNonFiniteGroup(row, dtype()), 2) << bad;
    }
    return;
  }
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

class IntegersTest : public QuantiseTest {};
INSTANTIATE_TEST_SUITE_P(Bits, IntegersTest, testing::Values(DType::kInt8, DType::kInt4),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// Every code from every zero point, under scales of fp16 and of bf16.
TEST_P(IntegersTest, WeightsAreExactlyWhatIsPublished) {
  const auto most = static_cast<int>(MaxCode(dtype()));
  std::vector<float> scales;
  for (const uint32_t half : {0x0001U, 0x03FFU, 0x2111U, 0x3BFFU, 0x7BFFU})
    scales.push_back(HalfToFloat(static_cast<uint16_t>(half)));
  for (const uint32_t top : {0x00810000U, 0x2A7F0000U, 0xB87F0000U, 0x43010000U})
    scales.push_back(std::bit_cast<float>(top));
  for (const float scale : scales) {
    for (int zero = 0; zero <= most; ++zero) {
      const uint32_t head = std::bit_cast<uint32_t>(scale) | static_cast<uint32_t>(zero);
      ASSERT_EQ(std::bit_cast<float>(head & ~kZeroMask), scale);
      for (int first = 0; first <= most; first += 64) {
        std::vector<uint8_t> codes(64);
        for (int k = 0; k < 64; ++k)
          codes[static_cast<size_t>(k)] = static_cast<uint8_t>((first + k) % (most + 1));
        std::vector<std::byte> group(static_cast<size_t>(GroupBytes(dtype())));
        PackGroup(std::as_bytes(std::span(&head, 1)), codes, dtype(), group);
        std::vector<float> floats(64);
        DequantiseRow(group.data(), dtype(), floats);
        for (size_t k = 0; k < 64; ++k) {
          const float expected = scale * static_cast<float>(codes[k] - zero);
          ASSERT_EQ(floats[k], expected) << scale << " zero " << zero << " code " << int{codes[k]};
          ASSERT_EQ(DequantiseRef(group.data(), dtype(), static_cast<int64_t>(k)), expected);
        }
      }
    }
  }
}

TEST_P(IntegersTest, OtherWeightsComeBackWithinHalfAStepOfARangeWithZero) {
  for (const float scale : {1e-7F, 1e-4F, 0.05F, 700.0F}) {
    for (const float offset : {0.0F, 2.0F, -2.0F}) {
      std::vector<float> weights = RandomFloats(130, 3, scale);
      for (float& weight : weights) weight += offset * scale;
      const std::vector<uint16_t> halfs = Halfs(weights);
      const std::vector<float> back = ThereAndBack(halfs);
      for (size_t begin = 0; begin < halfs.size(); begin += 64) {
        const size_t end = std::min(halfs.size(), begin + 64);
        float low = 0.0F;
        float high = 0.0F;
        for (size_t k = begin; k < end; ++k) {
          low = std::min(low, HalfToFloat(halfs[k]));
          high = std::max(high, HalfToFloat(halfs[k]));
        }
        // A weight at an end of the range is up to a whole step off where 0 is half way.
        const float step = (high - low) / static_cast<float>(MaxCode(dtype()));
        for (size_t k = begin; k < end; ++k)
          ASSERT_NEAR(back[k], HalfToFloat(halfs[k]), 1.01F * step) << k;
      }
    }
  }
}

TEST(Fp8Test, EveryNumberUnderAScaleIsExactlyWhatIsPublished) {
  for (const float scale : {1.0F, 0x1.234568p-7F, 3.0F}) {
    for (unsigned first = 0; first < 256; first += 64) {
      std::vector<uint8_t> codes(64);
      for (unsigned k = 0; k < 64; ++k) codes[k] = static_cast<uint8_t>(first + k);
      std::vector<std::byte> group(static_cast<size_t>(GroupBytes(DType::kFp8)));
      PackGroup(std::as_bytes(std::span(&scale, 1)), codes, DType::kFp8, group);
      std::vector<float> floats(64);
      DequantiseRow(group.data(), DType::kFp8, floats);
      for (unsigned k = 0; k < 64; ++k) {
        const unsigned code = codes[k];
        if ((code & kFp8NaN) == kFp8NaN) continue;
        const int exponent = static_cast<int>(code >> 3 & 15);
        const float size =
            exponent == 0 ? std::ldexp(static_cast<float>(code & 7), -9)
                          : std::ldexp(1.0F + static_cast<float>(code & 7) / 8.0F, exponent - 7);
        ASSERT_EQ(floats[k], (code < 128 ? size : -size) * scale) << code;
      }
      EXPECT_EQ(FindNonFiniteGroup(group, DType::kFp8), first % 128 == 64 ? 0 : -1) << first;
    }
  }
}

TEST(Fp8Test, OtherValuesBecomeTheNearestNumbers) {
  for (const float scale : {1e-6F, 1e-4F, 0.02F, 1.0F, 9000.0F}) {
    const std::vector<uint16_t> halfs = Halfs(RandomFloats(320, 5, scale));
    std::vector<std::byte> row(static_cast<size_t>(RowBytes(DType::kFp8, 320)));
    QuantiseRow(halfs, DType::kFp8, row);
    std::vector<float> back(320);
    DequantiseRow(row.data(), DType::kFp8, back);
    for (size_t k = 0; k < back.size(); ++k) {
      float of_group = 0.0F;
      std::memcpy(&of_group, row.data() + k / 64 * static_cast<size_t>(GroupBytes(DType::kFp8)),
                  sizeof(of_group));
      const float weight = HalfToFloat(halfs[k]);
      float nearest = INFINITY;
      for (unsigned code = 0; code < 127; ++code) {
        const int exponent = static_cast<int>(code >> 3);
        const float size =
            exponent == 0 ? std::ldexp(static_cast<float>(code & 7), -9)
                          : std::ldexp(1.0F + static_cast<float>(code & 7) / 8.0F, exponent - 7);
        nearest = std::min(nearest, std::abs(size * of_group - std::abs(weight)));
      }
      ASSERT_NEAR(std::abs(back[k] - weight), nearest, 1e-6F * std::abs(weight)) << k;
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
