// GatherRows: y[row] = *rows[row], fp32 rows from wherever they lie. GPU only: the CPU copies them.
#pragma once

#include <cstdint>
#include <span>

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct GatherRowsArgs {
  std::span<const float* const> rows;  // GPU memory, the list and what it points to; [cols] each
  int64_t cols = 0;
  float* y = nullptr;  // [rows.size(), cols], stride y_stride
  int64_t y_stride = 0;
};

// Stream: one kernel.
void GatherRowsAsync(const GatherRowsArgs& args, Stream& stream);

}  // namespace spillway::kernels
