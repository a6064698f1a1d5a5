// Norms of rows, and of the heads that lie side by side in a row, fp32.
//   layer: y = (x - mean) / sqrt(mean((x - mean)^2) + epsilon) * (weight_offset + weight) + bias
//   RMS: y = x / sqrt(mean(x^2) + epsilon) * (weight_offset + weight) + bias
// and of rows [+ plus].
// A row's (a head's) bits depend on that row only, and are the same for every number of threads.
// Thread rule: one call at a time per pool; the references run in any thread.
#pragma once

#include <cstdint>

#include "spillway/dtype.h"
#include "spillway/layer.h"  // NormKind
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
  const float* weight = nullptr;  // [cols] or null: times 1, without the offset
  const float* bias = nullptr;    // [cols] or null
  float epsilon = 1e-5F;
  NormKind kind = NormKind::kLayer;
  float weight_offset = 0.0F;
  const float* plus = nullptr;  // [rows, cols], stride plus_stride; may be x or y; or null
  int64_t plus_stride = 0;
};

void Norm(const NormArgs& args, ThreadPool& pool, Isa isa);
void NormRef(const NormArgs& args);

// GPU form: pointers are to GPU memory. Stream: one kernel.
void NormAsync(const NormArgs& args, Stream& stream);

// On a GPU: the norm, rounded to the 16-bit type of the products that read it; norm.y is not
// written.
struct RoundedNormArgs {
  NormArgs norm;
  void* rounded = nullptr;  // [rows, cols] of `dtype`, without gaps
  DType dtype = DType::kF16;
};
void RoundedNormAsync(const RoundedNormArgs& args, Stream& stream);

struct HeadNormArgs {
  float* x = nullptr;  // [rows, num_heads * head_dim], stride x_stride; in place
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  const float* weight = nullptr;  // [head_dim], the same for all heads; or null: times 1
  float epsilon = 1e-5F;
  float weight_offset = 0.0F;

  // The heads of one row as the rows of a norm.
  NormArgs HeadsOf(int64_t row) const {
    float* heads = x + row * x_stride;
    return {.x = heads,
            .x_stride = head_dim,
            .y = heads,
            .y_stride = head_dim,
            .rows = num_heads,
            .cols = head_dim,
            .weight = weight,
            .epsilon = epsilon,
            .kind = NormKind::kRms,
            .weight_offset = weight_offset};
  }
};

// The RMS norm of each head of each row. On the CPU it has the bits of Norm.
void HeadNorm(const HeadNormArgs& args, ThreadPool& pool, Isa isa);
void HeadNormRef(const HeadNormArgs& args);

// GPU form: pointers are to GPU memory. Stream: one kernel.
void HeadNormAsync(const HeadNormArgs& args, Stream& stream);

}  // namespace spillway::kernels
