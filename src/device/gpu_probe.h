// GpuProbe: the work whose rate on a GPU `profile` measures, one call at a time, with the engine's
// own kernels. The seam between the profile and the code that needs a toolkit.
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include "spillway/dtype.h"

namespace spillway {

class GpuProbe {
 public:
  // Work that a call did, and how long the GPU, or the link, took for it.
  struct Work {
    double units = 0.0;
    double seconds = 0.0;
  };

  virtual ~GpuProbe() = default;

  // Each does its work a few times and waits for it. Throws: Error kGpu.
  virtual Work CopyToGpu() = 0;  // bytes, as a run's own queue of copies does
  virtual Work CopyFromGpu() = 0;
  virtual Work ReadMemory() = 0;  // bytes, of a copy within the GPU: read and written ones
  // Operations of `width` square weights, which no cache holds, with this many rows.
  virtual Work Multiply(int64_t rows, int64_t width, DType weights) = 0;
  // Operations: 4 * head_dim of each pair that is attended to, in prompts this long.
  virtual Work AttendPrefill(int64_t head_dim, int64_t prompt_tokens) = 0;
  virtual Work AttendDecode() = 0;  // bytes of K and V
  // AttendPrefill and AttendDecode where tokens are evicted; bytes without the state beside K and
  // V.
  virtual Work EvictPrefill() = 0;
  virtual Work EvictDecode() = 0;
  virtual Work Normalize() = 0;  // elements of states
  // Attention layers of hardly any arithmetic, enqueued before they begin.
  virtual Work Launch() = 0;
};

}  // namespace spillway
