// Shared code of the instruction sets' Matmul tiles: the walk over panels of outputs, the weights
// to prefetch, the sums of a tile, and the last step: bias, activation, factor, residual, store.
#pragma once

#include "kernels/matmul/matmul_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

struct WeightAt {
  int64_t out;  // of the piece
  int64_t k;
};

// Weights that a worker reads after outputs [out, out + width) of the tile from k on, for
// prefetches: the outputs behind them, the first ones from the next step of k on, or its next tile.
inline WeightAt NextWeight(const MatmulTile& tile, int64_t out, int64_t width, int64_t k,
                           int64_t k_step) {
  if (out + width < tile.num_outs) return {tile.out_begin + out + width, k};
  if (k + k_step < tile.in) return {tile.out_begin, k + k_step};
  return {tile.next_out_begin, k % k_step};
}

// Few rows of x stay in the nearest cache: weights are then read along their rows.
inline int64_t StepOfK(const MatmulTile& tile, int64_t few_rows) {
  return tile.num_rows <= few_rows ? tile.in : kSimdBlockK;
}

// Calls panel<width>(out, k) for all outputs of the tile, kOuts at a time and the last ones one by
// one, and all blocks of k.
template <int kOuts, typename Panel>
void ForEachPanel(const MatmulTile& tile, int64_t k_step, const Panel& panel) {
  for (int64_t k_begin = 0; k_begin < tile.in; k_begin += k_step) {
    const int64_t k_end = MinOf(tile.in, k_begin + k_step);
    int64_t out = 0;
    for (; out + kOuts <= tile.num_outs; out += kOuts) {
      for (int64_t k = k_begin; k < k_end; k += kSimdBlockK)
        panel.template operator()<kOuts>(out, k);
    }
    for (; out < tile.num_outs; ++out) {
      for (int64_t k = k_begin; k < k_end; k += kSimdBlockK) panel.template operator()<1>(out, k);
    }
  }
}

// Adds the sums of kCount accumulators to sums[row][out], kWidth outs a row.
template <int kCount, int kWidth>
void AddSums(const Simd::F* acc, float* sums) {
  constexpr int kPadded = (kCount + Simd::kLanes - 1) / Simd::kLanes * Simd::kLanes;
  alignas(64) float values[kPadded];
#pragma GCC unroll 8
  for (int first = 0; first < kCount; first += Simd::kLanes) {
    Simd::F group[Simd::kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < Simd::kLanes; ++i)
      group[i] = first + i < kCount ? acc[first + i] : Simd::Zero();
    Simd::Store(values + first, Simd::SumEach(group));
  }
  for (int i = 0; i < kCount; ++i) sums[i / kWidth * kSimdTileOuts + i % kWidth] += values[i];
}

// y[row][out..out + n) = act(sum + bias) * times + residual; `row` and `out` count within the
// piece.
inline void Finish(const MatmulTile& tile, int64_t row, int64_t out, Simd::F sum, int64_t n) {
  const MatmulPiece& piece = *tile.piece;
  if (piece.bias != nullptr) sum = Simd::Add(sum, Simd::LoadPart(piece.bias + out, n));
  sum = Activate(sum, tile.activation);
  if (piece.times != nullptr) {
    sum = Simd::Mul(sum, Simd::LoadPart(piece.times + row * piece.times_stride + out, n));
  }
  if (piece.residual != nullptr) {
    sum = Simd::Add(sum, Simd::LoadPart(piece.residual + row * piece.residual_stride + out, n));
  }
  Simd::StorePart(piece.y + row * piece.y_stride + out, sum, n);
}

// Finishes a tile from sums[row][kSimdTileOuts].
inline void FinishTile(const MatmulTile& tile, const float* sums) {
  for (int64_t row = 0; row < tile.num_rows; ++row, sums += kSimdTileOuts) {
    for (int64_t out = 0; out < tile.num_outs; out += Simd::kLanes) {
      const int64_t n = MinOf(Simd::kLanes, tile.num_outs - out);
      Finish(tile, tile.row_begin + row, tile.out_begin + out, Simd::LoadPart(sums + out, n), n);
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
