// Matmul (kernels/matmul/matmul.h) on the GPU: y = act(x W^T + bias) * times + residual. Packed
// weights (IsQuantised) are multiplied as kernels/matmul/matmul_packed.h says. Weights of 16
// bits go through cuBLASLt, with x rounded to their type, products of tensor cores and fp32 sums.
// The rounding of x is the difference to the CPU's results: a relative error of 2^-11 (fp16) or
// 2^-8 (bf16) in each factor, in sum about that times sqrt(sum (x w)^2). For each length of a row
// there is one algorithm without split sums, chosen by a nominal shape and used for every number of
// rows and outputs: the order in which an output is summed is then the same whatever is computed
// beside it. Many rows get a second algorithm if a trial on the device shows that it gives the same
// bits. Thread rule: one thread.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/matmul/matmul.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// Steps around the products of 16-bit weights; kernels/matmul/matmul.cu.
struct RoundRowsArgs {
  const float* x = nullptr;  // [rows, cols], stride x_stride
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  void* y = nullptr;  // [rows, cols] of y_dtype, contiguous
  DType y_dtype = DType::kF16;
};
void RoundRowsAsync(const RoundRowsArgs& args, Stream& stream);

struct FinishArgs {
  float* y = nullptr;  // [rows, cols], stride y_stride: y = act(y + bias) * times
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  const float* bias = nullptr;  // [cols] or null
  Activation activation = Activation::kNone;
  const float* times = nullptr;  // [rows, cols], stride times_stride, or null; apart from y
  int64_t times_stride = 0;

  bool changes() const {
    return bias != nullptr || activation != Activation::kNone || times != nullptr;
  }
};
void FinishAsync(const FinishArgs& args, Stream& stream);

// Finishes y into the input of the next product, and leaves y as it is: the bits that FinishAsync
// and then RoundRowsAsync give.
struct RoundFinishedArgs {
  FinishArgs finish;
  void* rounded = nullptr;  // [rows, cols] of `dtype`, stride rounded_stride
  int64_t rounded_stride = 0;
  DType dtype = DType::kF16;
};
void RoundFinishedAsync(const RoundFinishedArgs& args, Stream& stream);

class GpuMatmul {
 public:
  // The lengths of x that will be asked for: multiples of 8, any for packed weights. Throws: Error
  // kGpu: none of the library's algorithms computes one of them.
  GpuMatmul(std::span<const int64_t> ins, DType weight_dtype, int64_t max_rows);

  // Looks for an algorithm that suits products of up to max_rows rows better and gives the bits of
  // the one for few, by products of random numbers in `scratch` (GPU memory, 16-byte aligned, a
  // workspace for max_rows). Without this call, or where none is found, one algorithm serves all.
  // Waits for the stream. Throws: Error kGpu.
  void ChooseForManyRows(std::span<std::byte> scratch, Stream& stream);

  // Pointers are to GPU memory. Requires: `in` is one of those; weight_dtype that of all pieces;
  // 16-byte aligned weights and y, strides of y and residual that are multiples of 4; a residual is
  // y itself, and there is neither activation nor `times` then; `times` does not overlap y. Packed
  // weights need 4-byte alignment only, with any strides, residual and `times`. Stream: a kernel
  // for x; for each piece a product and a kernel, or of packed weights one kernel. Allocates
  // nothing. Throws: Error kGpu.
  void MatmulAsync(const MatmulArgs& args, std::span<std::byte> workspace, Stream& stream);

  // MatmulAsync's second of three steps, for weights of 16 bits: the products alone. Requires also:
  // the workspace begins with x, [rows, in] of the weights' type; args.x is not read. FinishOf says
  // what is left to do. Stream: a product for each piece.
  void MultiplyRounded(const MatmulArgs& args, std::span<std::byte> workspace, Stream& stream);
  static FinishArgs FinishOf(const MatmulArgs& args, const MatmulPiece& piece);

  // Products of packed weights alone, of types that pack x alike; a workspace of PackedXBytes.
  // Stream: a kernel for x and one for each piece.
  static void MultiplyPacked(const MatmulArgs& args, std::span<std::byte> workspace,
                             Stream& stream);

 private:
  struct Algorithm {
    int64_t in = 0;
    cublasLtMatmulAlgo_t few;
    cublasLtMatmulAlgo_t many;  // over kFewRows rows; `few`, unless another gives its bits
  };
  struct Free {
    void operator()(cublasLtHandle_t handle) const noexcept { cublasLtDestroy(handle); }
  };
  struct Layouts;  // of one product
  struct Trial;    // products of random numbers

  void OpenLibrary();
  cudaDataType_t LibraryType() const;
  // The library's suggestions for one shape, the best first.
  std::vector<cublasLtMatmulAlgo_t> Candidates(Layouts& layouts);
  // Finds an algorithm that computes all shapes. Throws: Error kGpu.
  Algorithm Choose(int64_t in);
  bool Computes(const cublasLtMatmulAlgo_t& algorithm, Layouts& layouts);
  std::vector<cublasLtMatmulAlgo_t> CandidatesForMany(int64_t in);
  // One call of the library.
  struct Call;
  void Enqueue(const cublasLtMatmulAlgo_t& algorithm, Layouts& layouts, const Call& call,
               Stream& stream);

  DType weight_dtype_;
  int64_t max_rows_;
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Free> handle_;  // null: packed weights
  cublasLtMatmulDescOpaque_t operation_;  // weights transposed, fp32 sums
  std::vector<Algorithm> algorithms_;
};

}  // namespace spillway::kernels
