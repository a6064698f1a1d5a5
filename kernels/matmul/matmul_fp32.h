// MatmulFp32: products on the GPU with x and sums in fp32 and weights of 16 bits (Arithmetic::kFp32
// of kernels/matmul/matmul.h): a router's scores, where a rounded x would choose other experts than
// the CPU does. An output's bits depend on its own row of x and of the weights only. For matrices
// of a few hundred outputs. Thread rule: any thread; runs in the stream's order.
#pragma once

#include "kernels/matmul/matmul.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// Pointers are to GPU memory. Requires: `in` and x_stride are multiples of 8; x and the weights, of
// 16 bits, are 16-byte aligned; no activation, residual or times. Stream: a kernel for each piece.
void MatmulFp32Async(const MatmulArgs& args, Stream& stream);

}  // namespace spillway::kernels
