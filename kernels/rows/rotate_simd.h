// The body of Rotate, compiled once per instruction set. Products and sums are rounded one by one,
// as transformers does, so every instruction set gives the same bits.
#pragma once

#include "kernels/rows/rotate_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// cosines, sines: [half].
inline void RotateHalves(const float* cosines, const float* sines, int64_t half, float* x) {
  for (int64_t i = 0; i < half; i += Simd::kLanes) {
    const int64_t n = MinOf(half - i, Simd::kLanes);
    const Simd::F cosine = Simd::LoadPart(cosines + i, n);
    const Simd::F sine = Simd::LoadPart(sines + i, n);
    const Simd::F a = Simd::LoadPart(x + i, n);
    const Simd::F b = Simd::LoadPart(x + half + i, n);
    Simd::StorePart(x + i, Simd::Sub(Simd::Mul(a, cosine), Simd::Mul(b, sine)), n);
    Simd::StorePart(x + half + i, Simd::Add(Simd::Mul(b, cosine), Simd::Mul(a, sine)), n);
  }
}

inline void RotateNeighbours(const RowTurns& turns, int64_t dims, float* x) {
  for (int64_t i = 0; i < dims; i += Simd::kLanes) {
    const int64_t n = MinOf(dims - i, Simd::kLanes);
    const Simd::F cosine = Simd::LoadPart(turns.cosines + i, n);
    const Simd::F sine = Simd::LoadPart(turns.sines + i, n);
    const Simd::F v = Simd::LoadPart(x + i, n);
    const Simd::F turned = Simd::Mul(Simd::SwapNeighbours(v), sine);
    Simd::StorePart(x + i, Simd::Add(Simd::Mul(v, cosine), turned), n);
  }
}

inline void RotateRowSimd(const RotateArgs& args, const RowTurns& turns, float* x) {
  for (int64_t head = 0; head < args.num_heads; ++head) {
    float* first = x + head * args.head_dim;
    if (args.pairs == RopePairs::kHalves) {
      RotateHalves(turns.cosines, turns.sines, args.dims / 2, first);
    } else {
      RotateNeighbours(turns, args.dims, first);
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
