#include "kernels/rows/layer_norm_simd.h"

namespace spillway::kernels {

void LayerNormRowsPortable(const LayerNormArgs& args, int64_t row_begin, int64_t row_end) {
  LayerNormRowsSimd(args, row_begin, row_end);
}

}  // namespace spillway::kernels
