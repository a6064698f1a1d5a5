// Tile: the unit in which a tensor's rows are placed in tiers, stored on disk and read.
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "spillway/dtype.h"

namespace spillway {

// Alignment of a tile's bytes and of its place on disk.
inline constexpr int64_t kTileAlignBytes = 4096;

// Rows [begin, end) of a tensor.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// Tiles of `tile_rows` rows each; the last one has the rest, which may be a little more or less.
struct TileSplit {
  int64_t rows = 0;
  int64_t tile_rows = 0;
  int64_t num_tiles = 0;

  // Requires: 0 <= tile < num_tiles.
  RowRange Tile(int64_t tile) const {
    return {tile * tile_rows, tile + 1 == num_tiles ? rows : (tile + 1) * tile_rows};
  }
};

// Tiles of about 2 MiB, between 1 and 4 MiB; a tensor that is smaller, and every vector (one
// column), is one tile. All tiles but the last are a multiple of kTileAlignBytes long, so that
// neighbours which are read into adjacent memory are one contiguous matrix, and of 16 rows, the
// kernels' panel. Where both take more than 4 MiB, only the 4 KiB are kept, or only the panel, or
// neither.
// Requires: rows > 0, cols > 0.
TileSplit SplitIntoTiles(int64_t rows, int64_t cols, DType dtype);

}  // namespace spillway
