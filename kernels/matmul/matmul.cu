#include "kernels/matmul/matmul_gpu.h"
#include "kernels/simd/activate.cuh"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 4;  // floats of the widest load

// grid: (columns, row).
template <typename T>
__global__ void __launch_bounds__(kThreads) RoundRowsKernel(const RoundRowsArgs args) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = blockIdx.y;
  if (col >= args.cols) return;
  static_cast<T*>(args.y)[row * args.cols + col] = Narrow<T>(args.x[row * args.x_stride + col]);
}

// Columns of a row that a thread reads and writes at once.
template <int kWidth>
struct alignas(kWidth * sizeof(float)) Neighbours {
  float at[kWidth];
};

// grid: (columns, row). A thread finishes kWidth columns.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) FinishKernel(const FinishArgs args) {
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (col >= args.cols) return;
  const auto neighbours_at = [&](const float* row) {
    return *reinterpret_cast<const Neighbours<kWidth>*>(row + col);
  };
  float* row = args.y + blockIdx.y * args.y_stride;
  Neighbours<kWidth> y = neighbours_at(row);
  const Neighbours<kWidth> bias =
      args.bias != nullptr ? neighbours_at(args.bias) : Neighbours<kWidth>{};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) y.at[i] = Activate(y.at[i] + bias.at[i], args.activation);
  if (args.times != nullptr) {
    const Neighbours<kWidth> times = neighbours_at(args.times + blockIdx.y * args.times_stride);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y.at[i] = __fmul_rn(y.at[i], times.at[i]);
  }
  *reinterpret_cast<Neighbours<kWidth>*>(row + col) = y;
}

bool IsAligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

// True: a thread may take kWide columns of every row at once. A null pointer counts as aligned.
bool TakesWide(const FinishArgs& args) {
  constexpr int64_t kBytes = kWide * int64_t{sizeof(float)};
  return args.cols % kWide == 0 && args.y_stride % kWide == 0 && args.times_stride % kWide == 0 &&
         IsAligned(args.y, kBytes) && IsAligned(args.bias, kBytes) && IsAligned(args.times, kBytes);
}

template <int kWidth>
void LaunchFinish(const FinishArgs& args, Stream& stream) {
  const dim3 grid(Blocks(args.cols, int64_t{kThreads} * kWidth), static_cast<unsigned>(args.rows));
  LaunchKernel(FinishKernel<kWidth>, grid, kThreads, args, stream, "matmul finish launch");
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
  if (args.bias == nullptr && args.activation == Activation::kNone && args.times == nullptr) return;
  TakesWide(args) ? LaunchFinish<kWide>(args, stream) : LaunchFinish<1>(args, stream);
}

}  // namespace spillway::kernels
