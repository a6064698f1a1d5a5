// cuBLASLt's product, by the CPU's kernel: as there, an output's bits do not depend on what is
// computed beside it.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/matmul/matmul.h"
#include "src/base/thread_pool.h"
#include "tests/soft_gpu/streams.h"

namespace {

using spillway::DType;
namespace kernels = spillway::kernels;

DType TypeOf(cudaDataType_t type) { return type == CUDA_R_16F ? DType::kF16 : DType::kBF16; }

std::vector<float> Widened(const void* rows, int64_t count, DType dtype) {
  std::vector<float> floats(static_cast<std::size_t>(count));
  const auto* bytes = static_cast<const std::byte*>(rows);
  kernels::Convert({bytes, floats.size() * 2}, dtype, std::as_writable_bytes(std::span(floats)),
                   DType::kF32);
  return floats;
}

template <typename T>
void Reverse(std::vector<T>& rows, int64_t length) {
  for (auto row = rows.begin(); row != rows.end(); row += length) std::reverse(row, row + length);
}

void Multiply(const kernels::MatmulArgs& args) {
  static spillway::ThreadPool pool(1);
  static const kernels::Isa isa = kernels::BestIsa(spillway::CpuCompute::kFp32);
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(kernels::MatmulWorkspaceBytes(args.rows, args.in, 1, isa)) + 64);
  void* begin = workspace.data();
  std::size_t space = workspace.size();
  std::align(64, workspace.size() - 64, begin, space);
  kernels::Matmul(args, {static_cast<std::byte*>(begin), space}, pool, isa);
}

}  // namespace

struct cublasLtContext {};

namespace {

// An algorithm is the number of rows that it was suggested for, and whether it sums from the end.
// One for many rows refuses few, as kernels do whose copies are of whole boxes.
constexpr uint64_t kManyRows = 64;
constexpr uint64_t kFewRows = 8;
constexpr uint64_t kBackwards = 1;

bool IsRefused(const cublasLtMatmulAlgo_t& algorithm, uint64_t rows) {
  return algorithm.data[0] >= kManyRows && rows < kFewRows;
}

// Alignment of the workspace that the library asks for.
constexpr uintptr_t kWorkspaceAlign = 256;

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t) { return "a fault of the product"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t operation, cublasComputeType_t,
                                      cudaDataType_t) {
  operation->of_a = CUBLAS_OP_N;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t, const void* value,
                                              std::size_t bytes) {
  std::memcpy(&operation->of_a, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type,
                                        uint64_t rows, uint64_t cols, int64_t stride) {
  *layout = {type, rows, cols, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t layout_d, cublasLtMatmulPreference_t, int,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (layout_d->cols > 2 * kManyRows)
    results[(*found)++] = {{{layout_d->cols, kBackwards}}, 0, CUBLAS_STATUS_SUCCESS};
  results[(*found)++] = {{{layout_d->cols}}, 0, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t layout_d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (IsRefused(*algorithm, layout_d->cols)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {{}, 0, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

// Matrices are stored by columns: D [out, rows] = A^T B + beta C, A [in, out] and B [in, rows].
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t,
                              cudaStream_t stream) {
  float scale = 0.0F;
  float keep = 0.0F;
  std::memcpy(&scale, alpha, sizeof(scale));
  std::memcpy(&keep, beta, sizeof(keep));
  const auto in = static_cast<int64_t>(layout_a->rows);
  const auto out = static_cast<int64_t>(layout_d->rows);
  const auto rows = static_cast<int64_t>(layout_d->cols);
  const bool fits = operation->of_a == CUBLAS_OP_T && layout_b->rows == layout_a->rows &&
                    layout_a->cols == layout_d->rows && layout_b->cols == layout_d->cols &&
                    layout_a->stride == in && layout_b->stride == in && scale == 1.0F &&
                    (keep == 0.0F || (keep == 1.0F && c == d));
  const bool is_aligned = reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlign == 0;
  if (!fits || !is_aligned) return CUBLAS_STATUS_INVALID_VALUE;
  if (IsRefused(*algorithm, layout_d->cols)) return CUBLAS_STATUS_NOT_SUPPORTED;
  kernels::MatmulPiece piece;
  piece.weight = a;
  piece.weight_dtype = TypeOf(layout_a->type);
  piece.num_out = out;
  piece.y = static_cast<float*>(d);
  piece.y_stride = layout_d->stride;
  if (keep == 1.0F) {
    piece.residual = piece.y;
    piece.residual_stride = piece.y_stride;
  }
  const bool backwards = algorithm->data[1] == kBackwards;
  spillway::soft_gpu::Enqueue(stream, [=, dtype = TypeOf(layout_b->type)]() mutable {
    std::vector<float> x = Widened(b, in * rows, dtype);
    std::vector<uint16_t> weight;
    if (backwards) {
      const auto* first = static_cast<const uint16_t*>(a);
      weight.assign(first, first + out * in);
      Reverse(weight, in);
      Reverse(x, in);
      piece.weight = weight.data();
    }
    kernels::MatmulArgs args;
    args.x = x.data();
    args.x_stride = in;
    args.rows = rows;
    args.in = in;
    args.pieces = {&piece, 1};
    Multiply(args);
  });
  return CUBLAS_STATUS_SUCCESS;
}
