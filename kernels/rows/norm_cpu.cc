#include "kernels/rows/norm.h"
#include "kernels/rows/norm_isa.h"
#include "kernels/rows/row_tasks.h"

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

constexpr int64_t kTaskElements = 32768;

}  // namespace

void Norm(const NormArgs& args, ThreadPool& pool, Isa isa) {
  const auto rows_function = RowsFunction(isa);
  ForRowTasks(pool, args.rows, args.cols, kTaskElements,
              [&](int64_t begin, int64_t end) { rows_function(args, begin, end); });
}

void HeadNorm(const HeadNormArgs& args, ThreadPool& pool, Isa isa) {
  const auto rows_function = RowsFunction(isa);
  ForRowTasks(pool, args.rows, args.num_heads * args.head_dim, kTaskElements,
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row)
                  rows_function(args.HeadsOf(row), 0, args.num_heads);
              });
}

}  // namespace spillway::kernels
