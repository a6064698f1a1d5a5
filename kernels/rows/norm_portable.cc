#include "kernels/rows/norm_simd.h"

namespace spillway::kernels {

void NormRowsPortable(const NormArgs& args, int64_t row_begin, int64_t row_end) {
  NormRowsSimd(args, row_begin, row_end);
}

}  // namespace spillway::kernels
