// Soft cap, in place, fp32: x = cap * tanh(scale * x / cap), which is nearly scale * x where that
// is small and never beyond the cap; without a cap scale * x. An element's bits depend on that
// element only. Thread rule: one call at a time per pool; the reference runs in any thread.
#pragma once

#include <cstdint>

#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct SoftCapArgs {
  float* x = nullptr;  // [count]
  int64_t count = 0;
  float cap = 0.0F;  // 0: none
  float scale = 1.0F;
};

void SoftCap(const SoftCapArgs& args, ThreadPool& pool, Isa isa);
void SoftCapRef(const SoftCapArgs& args);

// GPU form: `x` is in GPU memory. Stream: one kernel.
void SoftCapAsync(const SoftCapArgs& args, Stream& stream);

}  // namespace spillway::kernels
