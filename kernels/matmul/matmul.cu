#include "kernels/matmul/matmul_gpu.h"
#include "kernels/simd/activate.cuh"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;

// grid: (columns, row).
template <typename T>
__global__ void __launch_bounds__(kThreads) RoundRowsKernel(const RoundRowsArgs args) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = blockIdx.y;
  if (col >= args.cols) return;
  static_cast<T*>(args.y)[row * args.cols + col] = Narrow<T>(args.x[row * args.x_stride + col]);
}

// grid: (columns, row).
__global__ void __launch_bounds__(kThreads) FinishKernel(const FinishArgs args) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= args.cols) return;
  float* y = args.y + blockIdx.y * args.y_stride + col;
  const float bias = args.bias != nullptr ? args.bias[col] : 0.0F;
  *y = Activate(*y + bias, args.activation);
}

}  // namespace

void RoundRowsAsync(const RoundRowsArgs& args, Stream& stream) {
  const dim3 grid(Blocks(args.cols, kThreads), static_cast<unsigned>(args.rows));
  if (args.y_dtype == DType::kF16) {
    LaunchKernel(RoundRowsKernel<__half>, grid, kThreads, args, stream, "matmul rounding launch");
  } else {
    LaunchKernel(RoundRowsKernel<__nv_bfloat16>, grid, kThreads, args, stream,
                 "matmul rounding launch");
  }
}

void FinishAsync(const FinishArgs& args, Stream& stream) {
  if (args.bias == nullptr && args.activation == Activation::kNone) return;
  const dim3 grid(Blocks(args.cols, kThreads), static_cast<unsigned>(args.rows));
  LaunchKernel(FinishKernel, grid, kThreads, args, stream, "matmul finish launch");
}

}  // namespace spillway::kernels
