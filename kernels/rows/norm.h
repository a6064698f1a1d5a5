// LayerNorm: y = (x - mean) / sqrt(var + epsilon) * weight + bias, per row, fp32.
#pragma once

#include <cstdint>

#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct NormArgs {
  const float* x = nullptr;  // [rows, cols], stride x_stride
  int64_t x_stride = 0;
  float* y = nullptr;  // [rows, cols], stride y_stride; may be x
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  const float* weight = nullptr;  // [cols] or null
  const float* bias = nullptr;    // [cols] or null
  float epsilon = 1e-5F;
};

void Norm(const NormArgs& args, ThreadPool& pool, Isa isa);
void NormRef(const NormArgs& args);

// GPU form: pointers are to GPU memory. Stream: one kernel.
void NormAsync(const NormArgs& args, Stream& stream);

}  // namespace spillway::kernels
