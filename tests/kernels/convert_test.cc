#include "kernels/convert/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/convert/convert_isa.h"
#include "kernels/rows/random_fill.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

const ConvertFunctions& FunctionsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kConvertAvx512;
  if (isa == Isa::kAvx2) return kConvertAvx2;
#endif
  static_cast<void>(isa);
  return kConvertPortable;
}

class ConvertTest : public testing::TestWithParam<Isa> {
 protected:
  const ConvertFunctions& functions() const { return FunctionsOf(GetParam()); }

  template <typename Out, typename In>
  std::vector<Out> Run(const std::vector<In>& in, DType from, DType to,
                       int64_t* overflows = nullptr) {
    std::vector<Out> out(in.size() + 1, Out{77});
    const int64_t count =
        functions().convert({in.data(), from, out.data(), to, static_cast<int64_t>(in.size())});
    if (overflows != nullptr) *overflows = count;
    EXPECT_EQ(out.back(), Out{77}) << "wrote past the end";
    out.pop_back();
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, ConvertTest, testing::ValuesIn(SupportedIsas()), IsaParamName);

std::vector<uint16_t> All16() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

bool IsNan16(uint16_t bits, DType dtype) {
  return (bits & 0x7FFF) > (dtype == DType::kF16 ? 0x7C00 : 0x7F80);
}

TEST(ScalarConvert, KnownValues) {
  EXPECT_EQ(FloatToHalf(1.0F), 0x3C00);
  EXPECT_EQ(FloatToHalf(-2.0F), 0xC000);
  EXPECT_EQ(FloatToHalf(65504.0F), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65519.99F), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7C00);
  EXPECT_EQ(FloatToHalf(0x1p-24F), 0x0001);
  EXPECT_EQ(FloatToHalf(0x1p-25F), 0x0000);    // a tie, to even
  EXPECT_EQ(FloatToHalf(0x1.8p-24F), 0x0002);  // a tie, to even
  EXPECT_EQ(FloatToHalf(0x1.002p0F), 0x3C00);  // a tie, to even
  EXPECT_EQ(FloatToHalf(0x1.006p0F), 0x3C02);  // a tie, to even
  EXPECT_EQ(FloatToHalf(-0.0F), 0x8000);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24F);
  EXPECT_EQ(HalfToFloat(0x7C00), kInf);
  EXPECT_EQ(FloatToBFloat16(1.0F), 0x3F80);
  EXPECT_EQ(FloatToBFloat16(0x1.01p0F), 0x3F80);  // a tie, to even
  EXPECT_EQ(FloatToBFloat16(0x1.03p0F), 0x3F82);  // a tie, to even
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(kPoison))));
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(kPoison))));
}

TEST(ScalarConvert, NearestHalfBySearch) {
  // Every midpoint between neighbouring halfs, and its neighbours in fp32.
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = HalfToFloat(static_cast<uint16_t>(bits));
    const float high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToHalf(middle), even) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, kInf)), bits + 1);
  }
}

TEST_P(ConvertTest, All16BitPatternsWidenAsTheScalarsAndComeBack) {
  const std::vector<uint16_t> all = All16();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const std::vector<float> wide = Run<float>(all, dtype, DType::kF32);
    const std::vector<uint16_t> back = Run<uint16_t>(wide, DType::kF32, dtype);
    for (size_t i = 0; i < all.size(); ++i) {
      const float expected = dtype == DType::kF16 ? HalfToFloat(all[i]) : BFloat16ToFloat(all[i]);
      if (IsNan16(all[i], dtype)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
        ASSERT_TRUE(IsNan16(back[i], dtype)) << i;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
      ASSERT_EQ(back[i], all[i]) << i;
    }
  }
}

TEST_P(ConvertTest, FloatsNarrowAsTheScalars) {
  std::vector<float> floats;
  std::mt19937 random(5);
  for (int i = 0; i < 200001; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (const float scale : {1.0F, 1e-5F, 1e-7F, 1e4F}) {
    for (const float value : RandomFloats(30000, 6, scale)) floats.push_back(value);
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    int64_t overflows = 0;
    const std::vector<uint16_t> narrow = Run<uint16_t>(floats, DType::kF32, dtype, &overflows);
    int64_t expected_overflows = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint16_t expected =
          dtype == DType::kF16 ? FloatToHalf(floats[i]) : FloatToBFloat16(floats[i]);
      const float wide = dtype == DType::kF16 ? HalfToFloat(expected) : BFloat16ToFloat(expected);
      if (std::isfinite(floats[i]) && !std::isfinite(wide)) ++expected_overflows;
      ASSERT_EQ(narrow[i], expected) << floats[i];
    }
    EXPECT_EQ(overflows, expected_overflows);
  }
}

TEST_P(ConvertTest, Between16BitTypes) {
  const std::vector<uint16_t> all = All16();
  int64_t overflows = 0;
  const std::vector<uint16_t> halfs = Run<uint16_t>(all, DType::kBF16, DType::kF16, &overflows);
  EXPECT_GT(overflows, 0);
  for (size_t i = 0; i < all.size(); ++i) {
    if (IsNan16(all[i], DType::kBF16)) continue;
    ASSERT_EQ(halfs[i], FloatToHalf(BFloat16ToFloat(all[i]))) << i;
  }
  const std::vector<uint16_t> brains = Run<uint16_t>(all, DType::kF16, DType::kBF16, &overflows);
  EXPECT_EQ(overflows, 0);
  for (size_t i = 0; i < all.size(); ++i) {
    if (IsNan16(all[i], DType::kF16)) continue;
    ASSERT_EQ(brains[i], FloatToBFloat16(HalfToFloat(all[i]))) << i;
  }
  EXPECT_EQ(Run<uint16_t>(all, DType::kF16, DType::kF16)[12345], 12345);
}

TEST_P(ConvertTest, OddLengths) {
  for (size_t count = 0; count < 70; ++count) {
    const std::vector<float> floats = RandomFloats(static_cast<int64_t>(count), 9);
    const std::vector<uint16_t> halfs = Run<uint16_t>(floats, DType::kF32, DType::kF16);
    const std::vector<float> wide = Run<float>(halfs, DType::kF16, DType::kF32);
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(wide[i], HalfToFloat(FloatToHalf(floats[i]))) << i << " of " << count;
  }
}

TEST_P(ConvertTest, FindsTheFirstNonFinite) {
  for (const int64_t at : {0, 5, 4095, 4096, 9998}) {
    std::vector<float> floats(9999, 1.0F);
    std::vector<uint16_t> halfs(9999, 0x7BFF);
    std::vector<uint16_t> brains(9999, 0x7F7F);
    EXPECT_EQ(functions().find_non_finite(floats.data(), DType::kF32, 9999), -1);
    EXPECT_EQ(functions().find_non_finite(halfs.data(), DType::kF16, 9999), -1);
    EXPECT_EQ(functions().find_non_finite(brains.data(), DType::kBF16, 9999), -1);
    floats[static_cast<size_t>(at)] = -kInf;
    halfs[static_cast<size_t>(at)] = 0xFE00;
    brains[static_cast<size_t>(at)] = 0x7F80;
    floats[9998] = kPoison;
    EXPECT_EQ(functions().find_non_finite(floats.data(), DType::kF32, 9999), at);
    EXPECT_EQ(functions().find_non_finite(halfs.data(), DType::kF16, 9999), at);
    EXPECT_EQ(functions().find_non_finite(brains.data(), DType::kBF16, 9999), at);
  }
}

TEST_P(ConvertTest, RandomRunsAreTheSameForEveryInstructionSet) {
  std::vector<float> ours(1001);
  std::vector<float> portable(1001);
  functions().fill_run(123, 0xFFFFFF00U, 0.37F, ours.data(), 1001);
  kConvertPortable.fill_run(123, 0xFFFFFF00U, 0.37F, portable.data(), 1001);
  EXPECT_EQ(Bits(ours), Bits(portable));
}

TEST(FillUniform, SlicesAgreeWithTheWhole) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const uint64_t first = (uint64_t{1} << 32) - 1500;  // crosses a change of key
    const size_t width = static_cast<size_t>(DTypeBytes(dtype));
    std::vector<std::byte> whole(5000 * width);
    FillUniform(whole, dtype, 42, first, 0.5F);
    for (const size_t begin : {1U, 700U, 1499U, 1500U, 1501U, 3000U}) {
      std::vector<std::byte> slice(1777 * width);
      FillUniform(slice, dtype, 42, first + begin, 0.5F);
      EXPECT_TRUE(std::equal(slice.begin(), slice.end(),
                             whole.begin() + static_cast<int64_t>(begin * width)))
          << begin;
    }
    std::vector<std::byte> other(5000 * width);
    FillUniform(other, dtype, 43, first, 0.5F);
    EXPECT_NE(whole, other);
  }
}

TEST(FillUniform, LooksUniform) {
  std::vector<float> values(1 << 20);
  FillUniform(std::as_writable_bytes(std::span(values)), DType::kF32, 1, 0, 2.0F);
  double sum = 0;
  double squares = 0;
  double neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_GE(values[i], -2.0F);
    ASSERT_LT(values[i], 2.0F);
    sum += values[i];
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    if (i > 0) neighbours += static_cast<double>(values[i]) * static_cast<double>(values[i - 1]);
  }
  const double count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 0.006);
  EXPECT_NEAR(squares / count, 4.0 / 3.0, 0.006);
  EXPECT_NEAR(neighbours / count, 0.0, 0.007);
}

}  // namespace
}  // namespace spillway::kernels
