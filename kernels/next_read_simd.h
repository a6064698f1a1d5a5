// Fetching what a worker reads next, compiled once per instruction set.
#pragma once

#include "kernels/attention_isa.h"
#include "kernels/simd.h"

namespace spillway::kernels {
namespace {

// Fetches the kNextStep bytes from `at`, as far as there are any. Returns where to go on.
inline __attribute__((always_inline)) int64_t FetchNext(const NextRead& next, int64_t at) {
  if (at >= next.bytes) return at;
  Fetch(next.data + at, MinOf(kNextStep, next.bytes - at));
  return at + kNextStep;
}

}  // namespace
}  // namespace spillway::kernels
