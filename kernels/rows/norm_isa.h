// Functions that norm_cpu.cc calls, one per instruction set. Private to the kernels.
#pragma once

#include "kernels/rows/norm.h"

namespace spillway::kernels {

void NormRowsPortable(const NormArgs& args, int64_t row_begin, int64_t row_end);
void NormRowsAvx2(const NormArgs& args, int64_t row_begin, int64_t row_end);
void NormRowsAvx512(const NormArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace spillway::kernels
