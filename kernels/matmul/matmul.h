// Matmul: y = act(x W^T + bias) * times + residual, fp32 x with 16-bit row-major weights, fp32
// sums. Relative to sqrt(sum (x w)^2) the error is that of an fp32 FMA loop (1e-6 at in = 2048); on
// AMX 4e-6, 6e-6 with GGUF's types; 3e-5 where weights are multiplied as codes: all but FP8 on
// VNNI, those with one step for a group on AMX. On kAvx512Bf16, kAmxBf16 and kAmxInt8 it is 2.5e-3
// where weights have 16 bits, and on kVnniInt8 and kAmxInt8 7e-3 where they are multiplied as
// codes, unless the call has Arithmetic::kFp32. One routine for every number of rows: each
// y[row][out] is computed in an order of operations that depends on `in` and the instruction set
// only, never on the other rows, the split into pieces or the number of threads. Thread rule: one
// call at a time per pool and workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/dtype.h"
#include "spillway/layer.h"  // Activation, Arithmetic
#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway::kernels {

// One run of output features and its destination. A matrix that is split over tiers, or Q, K and V
// of one layer, are several pieces of one call, so that x is prepared once.
struct MatmulPiece {
  const void* weight =
      nullptr;  // [num_out, in], dtype `weight_dtype`, rows contiguous, 64-byte aligned
  DType weight_dtype = DType::kF16;  // not kF32
  int64_t num_out = 0;
  const float* bias = nullptr;  // [num_out] or null
  float* y = nullptr;           // [rows, num_out], row stride y_stride (in floats)
  int64_t y_stride = 0;
  const float* residual =
      nullptr;  // [rows, num_out], row stride residual_stride, or null; may be y itself
  int64_t residual_stride = 0;
  const float* times =
      nullptr;  // [rows, num_out], row stride times_stride, or null; may be y itself
  int64_t times_stride = 0;
};

struct MatmulArgs {
  const float* x = nullptr;  // [rows, in], row stride x_stride (in floats)
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t in = 0;
  Activation activation = Activation::kNone;
  std::span<const MatmulPiece> pieces;
  Arithmetic arithmetic = Arithmetic::kAsAsked;
};

// Bytes of workspace (64-byte aligned) that a call with at most these sizes needs.
int64_t MatmulWorkspaceBytes(int64_t max_rows, int64_t max_in, int num_threads, Isa isa);

// Requires: workspace.size() >= MatmulWorkspaceBytes(rows, in, pool.num_threads(), isa). Allocates
// nothing.
void Matmul(const MatmulArgs& args, std::span<std::byte> workspace, ThreadPool& pool, Isa isa);

// The oracle: double accumulation, one thread, no tricks.
void MatmulRef(const MatmulArgs& args);

}  // namespace spillway::kernels
