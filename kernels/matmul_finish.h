// What the instruction sets' tiles of Matmul have in common: where they read on, and the last step,
// bias, activation, residual, store.
#pragma once

#include "kernels/matmul_isa.h"
#include "kernels/simd.h"

namespace spillway::kernels {
namespace {

struct WeightAt {
  int64_t out;  // of the piece
  int64_t k;
};

// What a worker reads after outputs [out, out + width) of the tile from k on, to be fetched
// meanwhile: the outputs behind them, the first ones from the next step of k on, or its next tile.
inline WeightAt NextWeight(const MatmulTile& tile, int64_t out, int64_t width, int64_t k,
                           int64_t k_step) {
  if (out + width < tile.num_outs) return {tile.out_begin + out + width, k};
  if (k + k_step < tile.in) return {tile.out_begin, k + k_step};
  return {tile.next_out_begin, k % k_step};
}

// y[row][out..out + n) = act(sum + bias) + residual; `row` and `out` count within the piece.
inline void Finish(const MatmulTile& tile, int64_t row, int64_t out, Simd::F sum, int64_t n) {
  const MatmulPiece& piece = *tile.piece;
  if (piece.bias != nullptr) sum = Simd::Add(sum, Simd::LoadPart(piece.bias + out, n));
  sum = Activate(sum, tile.activation);
  if (piece.residual != nullptr) {
    sum = Simd::Add(sum, Simd::LoadPart(piece.residual + row * piece.residual_stride + out, n));
  }
  Simd::StorePart(piece.y + row * piece.y_stride + out, sum, n);
}

}  // namespace
}  // namespace spillway::kernels
