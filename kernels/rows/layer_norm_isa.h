// Functions that layer_norm_cpu.cc calls, one per instruction set. Private to the kernels.
#pragma once

#include "kernels/rows/layer_norm.h"

namespace spillway::kernels {

void LayerNormRowsPortable(const LayerNormArgs& args, int64_t row_begin, int64_t row_end);
void LayerNormRowsAvx2(const LayerNormArgs& args, int64_t row_begin, int64_t row_end);
void LayerNormRowsAvx512(const LayerNormArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace spillway::kernels
