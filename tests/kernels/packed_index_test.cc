// A warp's products of packed groups, put together from PTX's definitions of prmt and of the
// fragments of mma.m16n8k16, against what quantise.h says the groups are worth.
#include "kernels/convert/packed_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/convert/quantise.h"
#include "kernels/simd/mma_index.h"

namespace spillway::kernels {
namespace {

constexpr int kLanes = 32;
constexpr int kGroup = static_cast<int>(kGroupWeights);

// prmt: nibble i of the selector names byte i of the result, 0 to 3 of a, 4 to 7 of b.
uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 15;
    EXPECT_LT(from, 8U) << "a sign, not a byte";
    result |= static_cast<uint32_t>(bytes >> (8 * from) & 255) << (8 * i);
  }
  return result;
}

struct Pair {
  float low = 0.0F;
  float high = 0.0F;
};

Pair Halfs(uint32_t word) {
  return {HalfToFloat(static_cast<uint16_t>(word & 0xFFFF)),
          HalfToFloat(static_cast<uint16_t>(word >> 16))};
}

// A matrix row of one group, minimums 0 and steps 1: it is worth its codes.
class Row {
 public:
  Row(DType dtype, uint32_t seed) : dtype_(dtype) {
    std::mt19937 random(seed);
    words_.resize(static_cast<std::size_t>(GroupWords(dtype)));
    for (uint32_t& word : words_) word = static_cast<uint32_t>(random());
    words_[0] = static_cast<uint32_t>(FloatToHalf(1.0F)) << (HasCodedScales(dtype) ? 0 : 16);
    if (!HasCodedScales(dtype)) return;
    words_[1] = 0x01010101;
    words_[2] = 0;
  }

  uint32_t Word(int i) const {
    return words_[static_cast<std::size_t>(GroupHeadWords(dtype_) + i)];
  }
  float Worth(int k) const {
    return DequantiseRef(reinterpret_cast<const std::byte*>(words_.data()), dtype_, k);
  }

  // Codes as PackedLane::Codes gives them.
  Pair Codes(int quad_lane, int step, int half) const {
    const auto word = [&](int i) { return Word(LaneWord(dtype_, quad_lane, i)); };
    const Pair bias = Halfs(kBias);
    if (CodeBits(dtype_) == 8) {
      const Pair biased = Halfs(BytePermute(word(step), kBias, ByteSelector(half)));
      return {biased.low - bias.low, biased.high - bias.high};
    }
    const uint32_t bytes = BytePermute(word(0), word(1), NibbleSelector(step));
    if (CodeBits(dtype_) == 6) {
      const uint32_t low = (half == 0 ? bytes : bytes >> 4) & kLowNibbles;
      const uint32_t high = (word(2) >> HighShift(step, half)) & kHighPairs;
      const Pair biased = Halfs(low | high << 4 | kBias);
      return {biased.low - bias.low, biased.high - bias.high};
    }
    if (half == 0) {
      const Pair biased = Halfs((bytes & kLowNibbles) | kBias);
      return {biased.low - bias.low, biased.high - bias.high};
    }
    const Pair biased = Halfs((bytes & kHighNibbles) | kBias);
    const Pair scale = Halfs(kSixteenth);
    const Pair offset = Halfs(kMinus64);
    return {biased.low * scale.low + offset.low, biased.high * scale.high + offset.high};
  }

 private:
  DType dtype_;
  std::vector<uint32_t> words_;
};

class PackedIndexTest : public testing::TestWithParam<DType> {
 protected:
  static DType dtype() { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Bits, PackedIndexTest,
                         testing::Values(DType::kQ8, DType::kQ4, DType::kGgufK6),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// Types that tables of embeddings may have.
class TableIndexTest : public PackedIndexTest {};
INSTANTIATE_TEST_SUITE_P(Bits, TableIndexTest, testing::Values(DType::kQ8, DType::kQ4),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(PackedIndexTest, ColumnsAreTheWeightsOnceEach) {
  std::array<int, kGroup> times = {};
  for (int step = 0; step < kGroupSteps; ++step) {
    for (int half = 0; half < 2; ++half) {
      for (int quad_lane = 0; quad_lane < 4; ++quad_lane) {
        const int weight = ColumnWeight(dtype(), step, half, quad_lane);
        ++times.at(static_cast<std::size_t>(weight));
        ++times.at(static_cast<std::size_t>(weight + 1));
      }
    }
  }
  EXPECT_EQ(std::count(times.begin(), times.end(), 1), kGroup);
}

TEST_P(PackedIndexTest, UnpackedCodesAreThoseOfTheirWeights) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Row row(dtype(), seed);
    for (int lane = 0; lane < 4 * kGroupSteps * 2; ++lane) {
      const int quad_lane = lane % 4;
      const int step = lane / 8;
      const int half = lane / 4 % 2;
      const int weight = ColumnWeight(dtype(), step, half, quad_lane);
      const Pair codes = row.Codes(quad_lane, step, half);
      ASSERT_EQ(codes.low, row.Worth(weight)) << weight;
      ASSERT_EQ(codes.high, row.Worth(weight + 1)) << weight;
    }
  }
}

TEST_P(PackedIndexTest, EveryWordIsRead) {
  std::array<int, 16> times = {};
  for (int quad_lane = 0; quad_lane < 4; ++quad_lane) {
    for (int i = 0; i < LaneWords(dtype()); ++i) {
      ++times.at(static_cast<std::size_t>(LaneWord(dtype(), quad_lane, i)));
    }
  }
  EXPECT_EQ(std::count(times.begin(), times.end(), 1),
            GroupWords(dtype()) - GroupHeadWords(dtype()));
}

TEST_P(TableIndexTest, CodesAreWhereTheTableLookUpFindsThem) {
  const Row row(dtype(), 1);
  for (int k = 0; k < kGroup; ++k) {
    const CodePlace place = PlaceOfCode(dtype(), k);
    const int64_t code = row.Word(place.word) >> place.shift & MaxCode(dtype());
    EXPECT_EQ(static_cast<float>(code), row.Worth(k)) << k;
  }
}

// Eight rows of x of one group after packing: each word written once.
class PackedX {
 public:
  PackedX(DType dtype, int64_t first_row) : first_row_(first_row) {
    for (int row = 0; row < 8; ++row) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int step = lane / 8;
        const int half = lane / 4 % 2;
        const int weight = ColumnWeight(dtype, step, half, lane % 4);
        bool& is_written = written_[At(row, XWord(first_row + row, step, half, lane % 4))];
        EXPECT_FALSE(is_written) << "row " << row << " lane " << lane;
        is_written = true;
        words_[At(row, XWord(first_row + row, step, half, lane % 4))] = {ValueAt(row, weight),
                                                                         ValueAt(row, weight + 1)};
      }
    }
  }
  static float ValueAt(int row, int k) { return static_cast<float>((row * 29 + k * 13) % 31 - 15); }

  // B's two words of a lane in a step, of the vectors it loads.
  std::array<Pair, 2> Factors(int lane, int step) const {
    const int vector = XVector(first_row_ + lane / 4, step / 2, lane % 4);
    const std::size_t at = At(lane / 4, 4 * vector + 2 * (step % 2));
    return {words_.at(at), words_.at(at + 1)};
  }

 private:
  static std::size_t At(int row, int word) {
    return static_cast<std::size_t>(row * kXGroupWords + word);
  }
  int64_t first_row_;
  std::array<Pair, std::size_t{8} * kXGroupWords> words_;
  std::array<bool, std::size_t{8}* kXGroupWords> written_ = {};
};

using Sums = std::array<std::array<float, 8>, 16>;  // [matrix row][row of x]

// One mma: A's element (r, c) and B's (c, n) are where PTX puts them.
void MultiplyAdd(const std::vector<Row>& rows, const PackedX& x, int step, Sums& sums) {
  std::array<std::array<float, 16>, 16> a = {};
  std::array<std::array<float, 8>, 16> b = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int word = 0; word < 4; ++word) {
      const TilePlace place = FactorPlace(lane, word);
      const auto row = static_cast<std::size_t>(place.row);
      const Pair pair = rows[row].Codes(lane % 4, step, word / 2);
      a[row].at(static_cast<std::size_t>(place.col)) = pair.low;
      a[row].at(static_cast<std::size_t>(place.col + 1)) = pair.high;
    }
    const std::array<Pair, 2> words = x.Factors(lane, step);
    for (std::size_t half = 0; half < 2; ++half) {
      const auto col = static_cast<std::size_t>(2 * (lane % 4)) + 8 * half;
      b.at(col)[static_cast<std::size_t>(lane / 4)] = words[half].low;
      b.at(col + 1)[static_cast<std::size_t>(lane / 4)] = words[half].high;
    }
  }
  for (std::size_t out = 0; out < 16; ++out) {
    for (std::size_t n = 0; n < 8; ++n) {
      for (std::size_t col = 0; col < 16; ++col) sums[out][n] += a[out][col] * b[col][n];
    }
  }
}

TEST_P(PackedIndexTest, AGroupsProductsMeetEveryWeightOnce) {
  std::vector<Row> rows;
  for (uint32_t row = 0; row < 16; ++row) rows.emplace_back(dtype(), row);
  for (const int64_t first_row : {0, 8}) {
    const PackedX x(dtype(), first_row);
    Sums sums = {};
    for (int step = 0; step < kGroupSteps; ++step) MultiplyAdd(rows, x, step, sums);
    for (std::size_t out = 0; out < 16; ++out) {
      for (int n = 0; n < 8; ++n) {
        float expected = 0.0F;
        for (int k = 0; k < kGroup; ++k) expected += rows[out].Worth(k) * PackedX::ValueAt(n, k);
        ASSERT_EQ(sums[out][static_cast<std::size_t>(n)], expected) << out << " " << n;
      }
    }
  }
}

// Shared memory serves 8 lanes of 16 bytes at a time.
TEST(PackedXTest, NeighbouringLanesReadDifferentBanks) {
  for (int pair = 0; pair < 2; ++pair) {
    for (int first = 0; first < kLanes; first += 8) {
      std::array<int, 8> times = {};
      for (int lane = first; lane < first + 8; ++lane) {
        const int vector = lane / 4 * kXGroupWords / 4 + XVector(lane / 4, pair, lane % 4);
        ++times[static_cast<std::size_t>(vector % 8)];
      }
      EXPECT_EQ(std::count(times.begin(), times.end(), 1), 8)
          << "pair " << pair << " lanes from " << first;
    }
  }
}

TEST(SumPartsTest, PartsCoverTheGroupsInOrder) {
  for (int groups = 1; groups < 500; ++groups) {
    EXPECT_EQ(PartBegin(0, groups), 0);
    EXPECT_EQ(PartBegin(kSumParts, groups), groups);
    for (int part = 0; part < kSumParts; ++part) {
      const int end = PartBegin(part + 1, groups);
      EXPECT_LE(PartBegin(part, groups), end);
      for (int group = PartBegin(part, groups); group < end; ++group) {
        EXPECT_EQ(PartEndOf(group, groups), end) << group << " of " << groups;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
