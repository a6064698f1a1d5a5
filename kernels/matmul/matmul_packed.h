// Matmul of packed weights (IsQuantised; kernels/convert/quantise.h) on the GPU:
// y = act(x W^T + bias) * times + residual by tensor cores, from packed weights to registers with
// no copy of the matrix in between. x is rounded to fp16, and a weight, minimum + code * step, is
// rounded to fp16 once (of kMxfp4 it is exact; of kInt8, kInt4 and kFp8 256 times the scale is
// rounded before): relative errors of 2^-11 in each factor, which add up to that times
// sqrt(sum (x w)^2), about. Beyond 65504 both are infinite. Sums are fp32, in an
// order that depends on `in` only (packed_index.h): a row's and an output's bits are the same
// whatever is computed beside them. Thread rule: one thread.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "spillway/round.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// x as the products read it: fp16 in whole groups, zeros behind the last weight, in the order of
// XWord.
constexpr int64_t PackedXBytes(int64_t rows, int64_t in) {
  return rows * RoundUp(in, kGroupWeights) * 2;
}

struct PackXArgs {
  const float* x = nullptr;  // [rows, in], stride x_stride
  int64_t x_stride = 0;
  int64_t rows = 0;  // at most 65535
  int64_t in = 0;
  DType weight_dtype = DType::kQ4;  // of the products
  void* packed = nullptr;           // PackedXBytes(rows, in), 16-byte aligned
};
// Stream: one kernel.
void PackXAsync(const PackXArgs& args, Stream& stream);

// How products with a type of weights take x: rounded to 16 bits, or packed for codes of 8 bits, or
// of fewer.
enum class FormOfX { kRounded, kPackedFor8Bits, kPackedForFewer };
constexpr FormOfX FormOf(DType weights) {
  if (!IsQuantised(weights)) return FormOfX::kRounded;
  return CodeBits(weights) == 8 ? FormOfX::kPackedFor8Bits : FormOfX::kPackedForFewer;
}

struct PackedMatmulArgs {
  const void* x = nullptr;  // packed for the piece's dtype
  int64_t rows = 0;
  int64_t in = 0;
  Activation activation = Activation::kNone;
  MatmulPiece piece;  // 4-byte aligned weights
};
// Stream: one kernel.
void PackedMatmulAsync(const PackedMatmulArgs& args, Stream& stream);

}  // namespace spillway::kernels
