// Functions that rotate_cpu.cc calls, one per instruction set. Private to the kernels.
#pragma once

#include "kernels/rows/rotate.h"

namespace spillway::kernels {

// The turns of one row's position, times RotateArgs::factor. kHalves: [dims / 2], one a pair;
// kNeighbours: [dims], one an element, where the sine of a pair's first element is negative.
struct RowTurns {
  float cosines[kMaxRotaryDims];
  float sines[kMaxRotaryDims];
};

// `x`: the first head of a row.
void RotateRowPortable(const RotateArgs& args, const RowTurns& turns, float* x);
void RotateRowAvx2(const RotateArgs& args, const RowTurns& turns, float* x);
void RotateRowAvx512(const RotateArgs& args, const RowTurns& turns, float* x);

}  // namespace spillway::kernels
