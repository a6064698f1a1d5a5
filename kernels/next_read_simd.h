// Fetching what a worker reads next, compiled once per instruction set.
#pragma once

#include "kernels/attention_isa.h"
#include "kernels/simd.h"

namespace spillway::kernels {
namespace {

// Fetches the kNextStep bytes from `at`, as far as there are any, to the second-level cache: they
// are more than the first holds. Returns where to go on.
inline __attribute__((always_inline)) int64_t FetchNext(const NextRead& next, int64_t at) {
  if (at >= next.bytes) return at;
  const int64_t bytes = MinOf(kNextStep, next.bytes - at);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(next.data + at + i, 0, 2);
  return at + kNextStep;
}

}  // namespace
}  // namespace spillway::kernels
