// GatherRows: y[row] = rows[row][column ...], fp32 rows from wherever they lie. GPU only: the CPU
// copies them.
#pragma once

#include <cstdint>
#include <span>

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct GatherRowsArgs {
  std::span<const float* const> rows;  // GPU memory, the list and what it points to
  int64_t cols = 0;
  float* y = nullptr;  // [rows.size(), cols], stride y_stride
  int64_t y_stride = 0;
  int64_t column = 0;  // of the rows, the first that is taken
};

// Stream: one kernel.
void GatherRowsAsync(const GatherRowsArgs& args, Stream& stream);

}  // namespace spillway::kernels
