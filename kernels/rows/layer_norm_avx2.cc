#include "kernels/rows/layer_norm_simd.h"

namespace spillway::kernels {

void LayerNormRowsAvx2(const LayerNormArgs& args, int64_t row_begin, int64_t row_end) {
  LayerNormRowsSimd(args, row_begin, row_end);
}

}  // namespace spillway::kernels
