// The body of SoftCap, compiled once per instruction set.
#pragma once

#include "kernels/rows/soft_cap_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

inline void SoftCapSimd(const SoftCapArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += Simd::kLanes) {
    const int64_t n = MinOf(end - i, Simd::kLanes);
    const Simd::F x = Simd::Mul(Simd::Set(args.scale), Simd::LoadPart(args.x + i, n));
    Simd::StorePart(args.x + i, SoftCapped(x, args.cap), n);
  }
}

}  // namespace
}  // namespace spillway::kernels
