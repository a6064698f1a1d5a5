// The last step of Matmul, the same for all instruction sets: bias, activation, residual, store.
#pragma once

#include "kernels/matmul_isa.h"
#include "kernels/simd.h"

namespace spillway::kernels {
namespace {

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
