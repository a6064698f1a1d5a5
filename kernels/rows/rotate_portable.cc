#include "kernels/rows/rotate_simd.h"

namespace spillway::kernels {

void RotateRowPortable(const RotateArgs& args, const RowTurns& turns, float* x) {
  RotateRowSimd(args, turns, x);
}

}  // namespace spillway::kernels
