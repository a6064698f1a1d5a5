// Panels of 16 outputs, which the kernels for AMX and for VNNI multiply at a time. Private to the
// kernels; for files with AVX-512.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/matmul_isa.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kPanelOuts = 16;

// In-register transposition of 16 x 16 words.
inline void Transpose(__m512i (&v)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xDD);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
  }
}

// Weights of a panel's outputs, rows `stride` elements apart. Outputs past the end repeat the last
// one, and their results are dropped.
template <typename T>
struct PanelRows {
  const T* weight[kPanelOuts];

  PanelRows(const MatmulTile& tile, int64_t stride, int64_t first_out) {
    const T* base = static_cast<const T*>(tile.piece->weight);
    for (int64_t i = 0; i < kPanelOuts; ++i) {
      weight[i] = base + MinOf(first_out + i, tile.out_begin + tile.num_outs - 1) * stride;
    }
  }
};

}  // namespace
}  // namespace spillway::kernels
