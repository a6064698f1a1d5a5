// Embedding: y[token] = scale * float(table[id]), or float(table[id]) + y[token]; rows gathered
// from a 16-bit table, or a quantised one (looked up, not added).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/dtype.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// Rows [row_begin, row_end) of the table, wherever they lie.
struct EmbeddingPiece {
  const void* rows = nullptr;  // [row_end - row_begin, cols], dtype
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

struct EmbeddingArgs {
  std::span<const EmbeddingPiece> pieces;  // ascending, without gaps, from row 0
  DType dtype = DType::kF16;               // not kF32
  int64_t cols = 0;
  int64_t first_row = 0;         // added to each id
  std::span<const int32_t> ids;  // each names a row of the table, checked
  float* y = nullptr;            // [ids.size(), cols], stride y_stride
  int64_t y_stride = 0;
  float scale = 1.0F;  // 1 where rows are added
};

void EmbeddingLookup(const EmbeddingArgs& args);  // overwrites y
void EmbeddingAdd(const EmbeddingArgs& args);     // adds to y

// GPU form: pointers and what the spans view are in GPU memory. The ids are not checked there.
// Stream: one kernel.
void EmbeddingLookupAsync(const EmbeddingArgs& args, Stream& stream);
void EmbeddingAddAsync(const EmbeddingArgs& args, Stream& stream);

}  // namespace spillway::kernels
