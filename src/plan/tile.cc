#include "spillway/tile.h"

#include <algorithm>
#include <numeric>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr int64_t kTargetBytes = 2 << 20;
constexpr int64_t kMaxBytes = 4 << 20;
constexpr int64_t kPanelRows = 16;

// The rows that a tile's count is a multiple of.
int64_t UnitRows(int64_t row_bytes) {
  // The least number of rows that fill whole disk blocks; a power of two like the panel, so that
  // the larger of the two is a multiple of both.
  const int64_t block_rows = kTileAlignBytes / std::gcd(kTileAlignBytes, row_bytes);
  for (const int64_t rows : {std::max(block_rows, kPanelRows), block_rows, kPanelRows}) {
    if (rows * row_bytes <= kMaxBytes) return rows;
  }
  return 1;
}

}  // namespace

TileSplit SplitIntoTiles(int64_t rows, int64_t cols, DType dtype) {
  SPILLWAY_CHECK(rows > 0 && cols > 0);
  const int64_t row_bytes = RowBytes(dtype, cols);
  if (cols == 1 || rows * row_bytes <= kTargetBytes) return {rows, rows, 1};
  const int64_t unit_rows = UnitRows(row_bytes);
  const int64_t unit_bytes = unit_rows * row_bytes;
  const int64_t num_units = std::max<int64_t>(1, (kTargetBytes + unit_bytes / 2) / unit_bytes);
  const int64_t tile_rows = num_units * unit_rows;
  int64_t num_tiles = std::max<int64_t>(1, (rows + tile_rows - 1) / tile_rows);
  // A short rest joins the tile before it, where the two do not become too long.
  const int64_t rest = rows - (num_tiles - 1) * tile_rows;
  const bool joins =
      num_tiles > 1 && 2 * rest < tile_rows && (tile_rows + rest) * row_bytes <= kMaxBytes;
  if (joins) --num_tiles;
  return {rows, tile_rows, num_tiles};
}

}  // namespace spillway
