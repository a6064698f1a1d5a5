#include "kernels/rows/rotate_simd.h"

namespace spillway::kernels {

void RotateRowAvx512(const RotateArgs& args, const RowTurns& turns, float* x) {
  RotateRowSimd(args, turns, x);
}

}  // namespace spillway::kernels
