// A warp's products as prefill attention puts them together, with ldmatrix and mma as PTX defines
// them (PTX ISA: "Matrix fragments for mma.m16n8k16", "ldmatrix").
#include "kernels/simd/mma_index.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

constexpr int kLanes = 32;

struct Pair {
  float low = 0.0F;
  float high = 0.0F;
};
using Words = std::array<Pair, 4>;  // of one lane
using Warp = std::array<Words, kLanes>;
using Tile = std::vector<std::vector<float>>;

float ValueAt(int row, int col, int seed) {
  return static_cast<float>((row * 31 + col * 17 + seed * 7) % 23 - 11);
}

Tile MakeTile(int rows, int cols, int seed) {
  Tile tile(static_cast<std::size_t>(rows), std::vector<float>(static_cast<std::size_t>(cols)));
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) {
      tile[static_cast<std::size_t>(row)][static_cast<std::size_t>(col)] = ValueAt(row, col, seed);
    }
  }
  return tile;
}

float At(const Tile& tile, int row, int col) {
  return tile[static_cast<std::size_t>(row)][static_cast<std::size_t>(col)];
}

enum class Transpose { kNo, kYes };

// ldmatrix.x4: matrix m has the rows that lanes 8 m to 8 m + 7 address. Lane l gets of each matrix
// elements 2 (l % 4) and the next of row l / 4; transposed, of column l / 4.
template <typename Address>
Warp LoadMatrices(const Tile& tile, Address address, Transpose transpose) {
  Warp warp;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](int row, int col) {
        const TilePlace begin = address(8 * matrix + row);
        return At(tile, begin.row, begin.col + col);
      };
      const int along = lane / 4;
      const int across = 2 * (lane % 4);
      Pair& pair = warp[static_cast<std::size_t>(lane)][static_cast<std::size_t>(matrix)];
      pair = transpose == Transpose::kNo ? Pair{element(along, across), element(along, across + 1)}
                                         : Pair{element(across, along), element(across + 1, along)};
    }
  }
  return warp;
}

// Lane 4 g + t of mma.m16n8k16 holds of A: a0 a1 = (g, 2t), a2 a3 = (g + 8, 2t), a4 a5 = (g, 2t +
// 8), a6 a7 = (g + 8, 2t + 8), each with its right neighbour; of B: b0 b1 = (2t, g), b2 b3 = (2t +
// 8, g), each with the one below; of C: c0 c1 = (g, 2t), c2 c3 = (g + 8, 2t).
Tile Multiply(const Warp& a, const Warp& b, std::size_t first_b) {
  Tile full_a = MakeTile(16, 16, 0);
  Tile full_b = MakeTile(16, 8, 0);
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto g = static_cast<std::size_t>(lane / 4);
    const auto t = static_cast<std::size_t>(lane % 4);
    const Words& words = a[static_cast<std::size_t>(lane)];
    const auto put = [&](std::size_t row, std::size_t col, const Pair& pair) {
      full_a[row][col] = pair.low;
      full_a[row][col + 1] = pair.high;
    };
    put(g, 2 * t, words[0]);
    put(g + 8, 2 * t, words[1]);
    put(g, 2 * t + 8, words[2]);
    put(g + 8, 2 * t + 8, words[3]);
    for (std::size_t half = 0; half < 2; ++half) {
      const Pair& pair = b[static_cast<std::size_t>(lane)][first_b + half];
      full_b[2 * t + 8 * half][g] = pair.low;
      full_b[2 * t + 8 * half + 1][g] = pair.high;
    }
  }
  Tile c = MakeTile(16, 8, 0);
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      float sum = 0.0F;
      for (int k = 0; k < 16; ++k) sum += At(full_a, row, k) * At(full_b, k, col);
      c[static_cast<std::size_t>(row)][static_cast<std::size_t>(col)] = sum;
    }
  }
  return c;
}

Warp FactorsOf(const Tile& a) {
  Warp warp;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int word = 0; word < 4; ++word) {
      const TilePlace place = FactorPlace(lane, word);
      warp[static_cast<std::size_t>(lane)][static_cast<std::size_t>(word)] = {
          At(a, place.row, place.col), At(a, place.row, place.col + 1)};
    }
  }
  return warp;
}

TEST(MmaIndexTest, ScoresAreQueriesTimesKeys) {
  const Tile q = MakeTile(16, 16, 1);
  const Tile keys = MakeTile(16, 16, 2);  // [key][dimension]
  const Warp b = LoadMatrices(keys, KeyAddress, Transpose::kNo);
  for (int half = 0; half < 2; ++half) {
    const Tile scores = Multiply(FactorsOf(q), b, static_cast<std::size_t>(2 * half));
    for (int query = 0; query < 16; ++query) {
      for (int key = 0; key < 8; ++key) {
        float expected = 0.0F;
        for (int d = 0; d < 16; ++d) expected += At(q, query, d) * At(keys, 8 * half + key, d);
        ASSERT_EQ(At(scores, query, key), expected) << query << " " << key;
      }
    }
  }
}

TEST(MmaIndexTest, OutputsAreWeightsTimesValues) {
  const Tile weights = MakeTile(16, 16, 3);  // [query][key]
  const Tile values = MakeTile(16, 16, 4);   // [key][dimension]
  const Warp b = LoadMatrices(values, ValueAddress, Transpose::kYes);
  for (int half = 0; half < 2; ++half) {
    const Tile out = Multiply(FactorsOf(weights), b, static_cast<std::size_t>(2 * half));
    for (int query = 0; query < 16; ++query) {
      for (int d = 0; d < 8; ++d) {
        float expected = 0.0F;
        for (int key = 0; key < 16; ++key)
          expected += At(weights, query, key) * At(values, key, 8 * half + d);
        ASSERT_EQ(At(out, query, d), expected) << query << " " << d;
      }
    }
  }
}

// A lane's sums of two neighbouring columns of keys are, in this order, its factors of the next
// product: no exchange between lanes.
TEST(MmaIndexTest, SumsBecomeFactorsInPlace) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int word = 0; word < 4; ++word) {
      SCOPED_TRACE(CaseOf("lane", lane, "word", word));
      const TilePlace factor = FactorPlace(lane, word);
      const int column = word / 2;  // of 8 keys
      const TilePlace low = SumPlace(lane, word % 2 * 2);
      const TilePlace high = SumPlace(lane, word % 2 * 2 + 1);
      EXPECT_EQ(low.row, factor.row);
      EXPECT_EQ(low.col + 8 * column, factor.col);
      EXPECT_EQ(high.row, factor.row);
      EXPECT_EQ(high.col, low.col + 1);
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
