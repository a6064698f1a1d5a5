#include <algorithm>

#include "kernels/rows/norm.h"
#include "kernels/rows/norm_isa.h"

namespace spillway::kernels {
namespace {

auto RowsFunction(Isa isa) {
#if defined(SPILLWAY_X86)
  if (isa >= Isa::kAvx512) return NormRowsAvx512;
  if (isa == Isa::kAvx2) return NormRowsAvx2;
#endif
  static_cast<void>(isa);
  return NormRowsPortable;
}

// Rows of `row_elements` that a task takes: about 10 us, well above the cost of handing it out.
int64_t TaskRows(int64_t row_elements) {
  constexpr int64_t kTaskElements = 32768;
  return std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, row_elements));
}

}  // namespace

void Norm(const NormArgs& args, ThreadPool& pool, Isa isa) {
  const int64_t task_rows = TaskRows(args.cols);
  const auto rows_function = RowsFunction(isa);
  auto task = [&](int64_t index, int /*worker*/) {
    rows_function(args, index * task_rows, std::min(args.rows, (index + 1) * task_rows));
  };
  pool.Run((args.rows + task_rows - 1) / task_rows, task);
}

void HeadNorm(const HeadNormArgs& args, ThreadPool& pool, Isa isa) {
  const int64_t task_rows = TaskRows(args.num_heads * args.head_dim);
  const auto rows_function = RowsFunction(isa);
  auto task = [&](int64_t index, int /*worker*/) {
    const int64_t end = std::min(args.rows, (index + 1) * task_rows);
    for (int64_t row = index * task_rows; row < end; ++row)
      rows_function(args.HeadsOf(row), 0, args.num_heads);
  };
  pool.Run((args.rows + task_rows - 1) / task_rows, task);
}

}  // namespace spillway::kernels
