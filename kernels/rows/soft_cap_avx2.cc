#include "kernels/rows/soft_cap_simd.h"

namespace spillway::kernels {

void SoftCapAvx2(const SoftCapArgs& args, int64_t begin, int64_t end) {
  SoftCapSimd(args, begin, end);
}

}  // namespace spillway::kernels
