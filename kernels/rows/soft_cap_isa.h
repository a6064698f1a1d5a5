// Functions that soft_cap_cpu.cc calls, one per instruction set. Private to the kernels.
#pragma once

#include "kernels/rows/soft_cap.h"

namespace spillway::kernels {

// Elements [begin, end).
void SoftCapPortable(const SoftCapArgs& args, int64_t begin, int64_t end);
void SoftCapAvx2(const SoftCapArgs& args, int64_t begin, int64_t end);
void SoftCapAvx512(const SoftCapArgs& args, int64_t begin, int64_t end);

}  // namespace spillway::kernels
