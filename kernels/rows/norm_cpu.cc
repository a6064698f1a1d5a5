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

}  // namespace

void Norm(const NormArgs& args, ThreadPool& pool, Isa isa) {
  constexpr int64_t kTaskElements =
      32768;  // about 10 us, well above the cost of handing a task out
  const int64_t task_rows = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, args.cols));
  const auto rows_function = RowsFunction(isa);
  auto task = [&](int64_t index, int /*worker*/) {
    rows_function(args, index * task_rows, std::min(args.rows, (index + 1) * task_rows));
  };
  pool.Run((args.rows + task_rows - 1) / task_rows, task);
}

}  // namespace spillway::kernels
