// K and V of 8 and 4 bits: what an element is worth once it is stored, by each instruction set and
// by the oracle, and that they store the same bytes.
#include "kernels/kv/kv_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/attention/attention.h"
#include "kernels/kv/kv_element_ref.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kDims[] = {64, 80, 128, 32, 48, 7, 1, 20, 200};

// One token's K as stored.
struct Stored {
  std::vector<std::byte> codes;
  std::vector<std::byte> ranges;
  int64_t head_dim;
  int bits;

  Stored(int64_t dim, int kv_bits)
      : codes(static_cast<size_t>(KvCodeBytes(dim, kv_bits)), std::byte{0xFF}),
        ranges(static_cast<size_t>(KvGroups(dim) * kKvRangeStride), std::byte{0xFF}),
        head_dim(dim),
        bits(kv_bits) {}
  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t d = 0; d < head_dim; ++d)
      values.push_back(DecodeKvRef(codes.data(), ranges.data(), d, head_dim, bits));
    return values;
  }
};

Stored StoreRef(const std::vector<float>& x, int bits) {
  Stored stored(static_cast<int64_t>(x.size()), bits);
  EncodeKvRef(x.data(), stored.head_dim, bits, stored.codes.data(), stored.ranges.data());
  return stored;
}

// Stores as Attention does: in slot 5 of 16, behind five zeros.
Stored StoreBy(Isa isa, const std::vector<float>& x, int bits) {
  Stored stored(static_cast<int64_t>(x.size()), bits);
  const int64_t dim = stored.head_dim;
  AlignedBytes kv(KvBlockBytes(1, dim, bits));
  std::vector<float> tokens(static_cast<size_t>(6 * dim));
  std::ranges::copy(x, tokens.end() - dim);
  std::vector<float> out(tokens.size());
  ThreadPool pool(1);
  const AttentionRow row{kv.data(), KvBlockSlots(bits), 0, 6, 0, nullptr};
  AttentionArgs args;
  args.q = args.k = args.v = tokens.data();
  args.qkv_stride = args.out_stride = args.head_dim = dim;
  args.out = out.data();
  args.rows = {&row, 1};
  args.num_heads = args.num_kv_heads = 1;
  args.kv_bits = bits;
  AlignedBytes workspace(AttentionWorkspaceBytes(16, dim, 1, isa));
  Attention(args, workspace.span(), pool, isa);
  const KvHead<std::byte> head{kv.data(), 1, dim, 0, KvBlockBytes(1, dim, bits), bits};
  std::copy_n(head.Key(5), stored.codes.size(), stored.codes.begin());
  for (int64_t group = 0; group < head.NumKeyRanges(); ++group) {
    const int64_t at = group * kKvRangeStride;
    std::copy_n(head.KeyRanges(5) + at, 4, stored.ranges.begin() + at);
    EXPECT_TRUE(
        std::equal(head.KeyRanges(5) + at, head.KeyRanges(5) + at + 4, head.ValueRanges(5) + at))
        << "group " << group;
  }
  EXPECT_TRUE(std::equal(stored.codes.begin(), stored.codes.end(), head.Value(5)));
  return stored;
}

// Expects each element of a group within the bound where all of them are finite.
void ExpectWithinBound(const std::vector<float>& x, int bits) {
  const std::vector<float> values = StoreRef(x, bits).Values();
  for (size_t begin = 0; begin < x.size(); begin += kKvGroup) {
    const auto group = std::span(x).subspan(begin, std::min<size_t>(kKvGroup, x.size() - begin));
    const auto [lowest, highest] = std::ranges::minmax(group);
    for (size_t i = 0; i < group.size(); ++i) {
      ASSERT_TRUE(std::isfinite(values[begin + i])) << group[i];
      ASSERT_LE(std::abs(values[begin + i] - group[i]), KvErrorBound(lowest, highest, bits))
          << bits << " bits, dim " << x.size() << ", element " << begin + i << ": " << group[i]
          << " in " << lowest << " to " << highest;
    }
  }
}

class KvCodeTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Bits, KvCodeTest, testing::Values(8, 4),
                         testing::PrintToStringParamName());

TEST_P(KvCodeTest, EachElementHasAPlaceOfItsOwnWithinItsToken) {
  for (const int64_t dim : kDims) {
    std::set<std::pair<int64_t, int>> places;
    for (int64_t d = 0; d < dim; ++d) {
      const KvCodePlace at = KvCodeAt(d, dim, GetParam());
      EXPECT_LT(at.byte, KvCodeBytes(dim, GetParam())) << dim << " " << d;
      EXPECT_LE(at.shift + GetParam(), 8) << dim << " " << d;
      EXPECT_TRUE(places.emplace(at.byte, at.shift).second) << dim << " " << d;
    }
  }
}

TEST_P(KvCodeTest, ElementsComeBackWithinTheBound) {
  uint32_t seed = 0;
  for (const int64_t dim : kDims) {
    for (const float scale : {1e-8F, 1e-6F, 1e-4F, 0.01F, 1.0F, 100.0F, 10000.0F}) {
      for (const float offset : {0.0F, 1.0F, -300.0F}) {
        std::vector<float> x = RandomFloats(dim, ++seed, scale);
        for (float& value : x) value = std::clamp(value + offset, -65519.0F, 65519.0F);
        ExpectWithinBound(x, GetParam());
      }
    }
  }
  // Size of a step in a group of ordinary values.
  const KvRange range = KvRangeOf(-1.0F, 1.0F, GetParam());
  EXPECT_NEAR(HalfToFloat(range.scale), 2.0 / KvSteps(GetParam()), 2e-3 / KvSteps(GetParam()));
  EXPECT_LT(KvErrorBound(-1.0F, 1.0F, GetParam()), 2.004 / KvSteps(GetParam()));
}

// A query's mean meets the sum of the errors.
TEST_P(KvCodeTest, AGroupKeepsItsMean) {
  for (const int64_t dim : {int64_t{64}, int64_t{40}}) {
    for (uint32_t seed = 0; seed < 50; ++seed) {
      std::vector<float> x = RandomFloats(dim, seed);
      for (float& value : x) value += static_cast<float>(seed % 5) - 2.0F;
      const std::vector<float> values = StoreRef(x, GetParam()).Values();
      const auto mean = [dim](const std::vector<float>& of) {
        return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(dim);
      };
      // Half an ulp of a min in fp16, which is under 8 here.
      EXPECT_NEAR(mean(values), mean(x), 0.5 * 0x1p-8 + 1e-6) << dim << " " << seed;
    }
  }
}

// Far from 0 fp16's own steps are wider than a code's: min then stays where the codes were taken.
TEST_P(KvCodeTest, AMinThatFp16CannotMoveStays) {
  const KvRange range = KvRangeOf(2000.0F, 2000.5F, GetParam());
  EXPECT_EQ(KvMovedMin(range, 64 * 2000.6F, 0, 64), range.min);
}

TEST_P(KvCodeTest, TheEndsOfHalfPrecision) {
  for (const auto& [low, high] : {std::pair{-65504.0F, 65504.0F},
                                  {65504.0F, 65504.0F},
                                  {-65504.0F, -65503.0F},
                                  {-65519.0F, 65519.0F},
                                  {0x1p-24F, 0x1p-24F},
                                  {-0x1p-24F, 0x1p-24F},
                                  {0.0F, 0x1p-30F},
                                  {-0.0F, 0.0F},
                                  {-0x1p-140F, 0x1p-140F},
                                  {2048.0F, 2048.5F}}) {
    std::vector<float> x(64, low);
    for (size_t i = 1; i < x.size(); i += 2) x[i] = high;
    ExpectWithinBound(x, GetParam());
  }
}

TEST_P(KvCodeTest, AConstantGroupIsExact) {
  for (const float value : {0.0F, 1.0F, -0.333251953125F, 65504.0F, -65504.0F, 0x1p-24F}) {
    const std::vector<float> x(80, value);
    EXPECT_EQ(StoreRef(x, GetParam()).Values(), x) << value;
  }
}

TEST_P(KvCodeTest, DenormalsAStepApartAreExact) {
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = (static_cast<float>(i % 16) - 5.0F) * 0x1p-24F;
  EXPECT_EQ(StoreRef(x, GetParam()).Values(), x);
}

// One group, and no other.
TEST_P(KvCodeTest, WhatFp16CannotHoldMakesItsGroupNan) {
  for (const float bad : {65520.0F, -65520.0F, 1e30F, HUGE_VALF, -HUGE_VALF, kPoison}) {
    std::vector<float> x = RandomFloats(128, 3);
    x[70] = bad;
    const std::vector<float> values = StoreRef(x, GetParam()).Values();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i >= 64) << bad;
  }
}

// A group whose elements lie between two codes, or an ulp beside: where a reciprocal rounds to one
// code and division to the other.
std::vector<float> HalvesOfCodes(uint32_t seed, int bits) {
  const std::vector<float> ends = RandomFloats(2, seed, seed % 2 == 0 ? 1.0F : 1e-4F);
  const KvRange range = KvRangeOf(std::min(ends[0], ends[1]), std::max(ends[0], ends[1]), bits);
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto code = static_cast<float>((i * 37 + seed) % static_cast<size_t>(KvSteps(bits)));
    const float half = std::fma(HalfToFloat(range.scale), code + 0.5F, HalfToFloat(range.min));
    x[i] = std::nextafter(half, i % 3 == 0 ? half : i % 3 == 1 ? -HUGE_VALF : HUGE_VALF);
  }
  x[0] = std::min(ends[0], ends[1]);
  x[1] = std::max(ends[0], ends[1]);
  return x;
}

class KvCodeIsaTest : public testing::TestWithParam<IsaAndKv> {};

INSTANTIATE_TEST_SUITE_P(All, KvCodeIsaTest, testing::ValuesIn(AllKvCases()), KvParamName);

TEST_P(KvCodeIsaTest, StoresTheOraclesBytes) {
  const int bits = GetParam().kv.bits.key;
  if (GetParam().kv.bits != KvBits(bits) || bits == 16) return;
  uint32_t seed = 0;
  for (const int64_t dim : kDims) {
    std::vector<std::vector<float>> tokens;
    for (const float scale : {1e-7F, 1e-5F, 0.1F, 1.0F, 30.0F, 30000.0F})
      tokens.push_back(RandomFloats(dim, ++seed, scale));
    for (const float value : {0.0F, -0.0F, 3.0F, -65504.0F, 65510.0F, 0x1p-24F, 0x1p-140F}) {
      tokens.emplace_back(static_cast<size_t>(dim), value);
      tokens.push_back(tokens.back());
      tokens.back().back() = -value;
    }
    for (const float bad : {65520.0F, -HUGE_VALF, kPoison}) {
      tokens.push_back(RandomFloats(dim, ++seed, 1.0F));
      tokens.back()[static_cast<size_t>(dim / 2)] = bad;
    }
    for (const std::vector<float>& x : tokens) {
      const Stored ours = StoreBy(GetParam().isa, x, bits);
      const Stored expected = StoreRef(x, bits);
      ASSERT_EQ(ours.codes, expected.codes) << "dim " << dim << ", from " << x[0];
      ASSERT_EQ(ours.ranges, expected.ranges) << "dim " << dim << ", from " << x[0];
    }
  }
}

TEST_P(KvCodeIsaTest, HalvesRoundAsDivisionHasThem) {
  const int bits = GetParam().kv.bits.key;
  if (GetParam().kv.bits != KvBits(bits) || bits == 16) return;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> x = HalvesOfCodes(seed, bits);
    ASSERT_EQ(StoreBy(GetParam().isa, x, bits).codes, StoreRef(x, bits).codes) << "seed " << seed;
  }
}

}  // namespace
}  // namespace spillway::kernels
