// Embedding: y[token] = float(table[id]) (+ y[token]), rows gathered from a 16-bit table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/dtype.h"

namespace spillway::kernels {

struct EmbeddingArgs {
  const void* table = nullptr;  // [table_rows, cols], dtype
  DType dtype = DType::kF16;    // kF16 or kBF16
  int64_t table_rows = 0;
  int64_t cols = 0;
  std::span<const int32_t> ids;  // each in [0, table_rows), checked
  float* y = nullptr;            // [ids.size(), cols], stride y_stride
  int64_t y_stride = 0;
};

void EmbeddingLookup(const EmbeddingArgs& args);  // overwrites y
void EmbeddingAdd(const EmbeddingArgs& args);     // adds to y

}  // namespace spillway::kernels
