// Shared code of the files for the AMX tile unit: shapes of its registers, words transposed for
// them, and sums transposed back. Private to the kernels.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/matmul_finish.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/matmul/matmul_panel.h"
#include "kernels/matmul/tile_unit.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// Tiles 0-3 accumulate [16 outs][columns], 4 and 5 hold weights, 6 and 7 hold x.
inline void ConfigureTiles(int64_t columns) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.column_bytes[tile] = tile == 4 || tile == 5 ? 64 : static_cast<uint16_t>(columns * 4);
  }
  SetTiles(config);
}

// Words [columns][16] -> [16][columns].
inline void StoreColumns(__m512i (&words)[16], int64_t columns, std::byte* to) {
  if (columns == 16) {
    Transpose(words);
    for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + i * 64, words[i]);
    return;
  }
  uint32_t* turned = reinterpret_cast<uint32_t*>(to);
  for (int64_t column = 0; column < columns; ++column) {
    alignas(64) uint32_t line[16];
    _mm512_store_si512(line, words[column]);
    for (int64_t i = 0; i < 16; ++i) turned[i * columns + column] = line[i];
  }
}

// Sums of 16 outputs, [16 outs][columns].
struct PanelSums {
  const float* sums;
  int64_t columns;
};

// y from the sums of outputs [out, out + 16) and rows [row, row + columns), cut to the tile.
inline void FinishTile(const MatmulTile& tile, int64_t out, int64_t row, const PanelSums& panel) {
  const int64_t num_outs = MinOf(kPanelOuts, tile.out_begin + tile.num_outs - out);
  const int64_t num_rows = MinOf(panel.columns, tile.row_begin + tile.num_rows - row);
  __m512i v[16];
  for (int64_t i = 0; i < 16; ++i) {
    v[i] = _mm512_castps_si512(Simd::LoadPart(panel.sums + i * panel.columns, panel.columns));
  }
  Transpose(v);
  for (int64_t i = 0; i < num_rows; ++i)
    Finish(tile, row + i, out, _mm512_castsi512_ps(v[i]), num_outs);
}

}  // namespace
}  // namespace spillway::kernels
