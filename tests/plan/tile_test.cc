#include "spillway/tile.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "spillway/model.h"
#include "tests/model_util.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Whether the rows that fill whole 4 KiB are short enough for a tile: not 512 of 29,568 codes of 8
// bits (Qwen 2.5 72B).
bool Aligns(int64_t row_bytes) {
  return kTileAlignBytes / std::gcd(kTileAlignBytes, row_bytes) * row_bytes <= 4 * kMiB;
}

// Expects what holds for the tiles of every tensor.
void CheckTiles(int64_t rows, int64_t cols, DType dtype) {
  const TileSplit split = SplitIntoTiles(rows, cols, dtype);
  const int64_t row_bytes = RowBytes(dtype, cols);
  int64_t next = 0;
  for (int64_t tile = 0; tile < split.num_tiles; ++tile) {
    SCOPED_TRACE(CaseOf("rows", rows, "cols", cols, "tile", tile));
    const RowRange range = split.Tile(tile);
    ASSERT_EQ(range.begin, next);
    ASSERT_GT(range.end, range.begin);
    next = range.end;
    if (tile + 1 == split.num_tiles) break;
    if (Aligns(row_bytes)) {
      ASSERT_EQ(range.size() * row_bytes % kTileAlignBytes, 0);
    }
  }
  ASSERT_EQ(next, rows);
}

TEST(SplitIntoTiles, CoversEveryBuiltInTensorOnce) {
  const auto check = [](const ModelShape& shape) {
    for (const LayerSpec& layer : LayersOf(shape)) {
      for (const TensorSpec& tensor : layer.tensors) {
        SCOPED_TRACE(shape.name + " " + tensor.name);
        CheckTiles(tensor.rows, tensor.cols, tensor.dtype);
        const TileSplit split = SplitIntoTiles(tensor.rows, tensor.cols, tensor.dtype);
        if (tensor.is_vector()) {
          ASSERT_EQ(split.num_tiles, 1);
        }
        if (split.num_tiles == 1) continue;
        const int64_t row_bytes = tensor.row_bytes();
        ASSERT_EQ(split.tile_rows % 16, 0);
        for (int64_t tile = 0; tile < split.num_tiles; ++tile) {
          ASSERT_LE(split.Tile(tile).size() * row_bytes, 4 * kMiB);
          if (tile + 1 == split.num_tiles) break;
          ASSERT_GE(split.Tile(tile).size() * row_bytes, kMiB);
        }
      }
    }
  };
  for (const std::string& name : BuiltInShapeNames()) {
    for (const int bits : {16, 8, 4}) {
      ModelShape shape = *BuiltInShape(name);
      shape.weight_bits = bits;
      check(shape);
    }
  }
}

TEST(SplitIntoTiles, KnownShapes) {
  // opt-6.7b's fc1: 8 KiB rows, 256 of them in 2 MiB.
  EXPECT_EQ(SplitIntoTiles(16384, 4096, DType::kF16).tile_rows, 256);
  EXPECT_EQ(SplitIntoTiles(16384, 4096, DType::kF16).num_tiles, 64);
  // opt-125m's attention: 1.1 MiB.
  EXPECT_EQ(SplitIntoTiles(768, 768, DType::kF16).num_tiles, 1);
  EXPECT_EQ(SplitIntoTiles(1 << 24, 1, DType::kF32).num_tiles, 1);
  EXPECT_EQ(SplitIntoTiles(1, 1, DType::kF16).num_tiles, 1);
}

TEST(SplitIntoTiles, AwkwardShapes) {
  for (const int64_t rows : {1, 2, 15, 16, 17, 4095, 50257, 100003}) {
    for (const int64_t cols : {2, 3, 63, 100, 511, 769, 4096, 12289, 65536}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
      if (cols % 2 == 1 && cols > 1024)
        continue;  // 2048 such rows exceed a tile: no alignment then
      CheckTiles(rows, cols, DType::kF16);
      CheckTiles(rows, cols, DType::kQ8);
      CheckTiles(rows, cols, DType::kQ4);
    }
  }
  // One row of 8 MiB: a tile, though longer than others are.
  EXPECT_EQ(SplitIntoTiles(3, 4 * kMiB, DType::kF16).num_tiles, 3);
  EXPECT_EQ(SplitIntoTiles(100003, 12289, DType::kF16).Tile(0).size(), 80);
}

}  // namespace
}  // namespace spillway
