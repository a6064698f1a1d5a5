#include "kernels/rows/row_tasks.h"
#include "kernels/rows/soft_cap.h"
#include "kernels/rows/soft_cap_isa.h"

namespace spillway::kernels {
namespace {

auto RangeFunction(Isa isa) {
#if defined(SPILLWAY_X86)
  if (isa >= Isa::kAvx512) return SoftCapAvx512;
  if (isa == Isa::kAvx2) return SoftCapAvx2;
#endif
  static_cast<void>(isa);
  return SoftCapPortable;
}

}  // namespace

void SoftCap(const SoftCapArgs& args, ThreadPool& pool, Isa isa) {
  constexpr int64_t kTaskElements = 16384;
  const auto range_function = RangeFunction(isa);
  ForRowTasks(pool, args.count, 1, kTaskElements,
              [&](int64_t begin, int64_t end) { range_function(args, begin, end); });
}

}  // namespace spillway::kernels
