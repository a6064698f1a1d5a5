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
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T)) Neighbours {
  T at[kWidth];
};

template <int kWidth>
__device__ Neighbours<float, kWidth> NeighboursAt(const float* at) {
  return *reinterpret_cast<const Neighbours<float, kWidth>*>(at);
}

// kWidth columns of a row, finished.
template <int kWidth>
__device__ Neighbours<float, kWidth> FinishedAt(const FinishArgs& args, int64_t row, int64_t col) {
  Neighbours<float, kWidth> y = NeighboursAt<kWidth>(args.y + row * args.y_stride + col);
  const Neighbours<float, kWidth> bias =
      args.bias != nullptr ? NeighboursAt<kWidth>(args.bias + col) : Neighbours<float, kWidth>{};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) y.at[i] = Activate(y.at[i] + bias.at[i], args.activation);
  if (args.times == nullptr) return y;
  const Neighbours<float, kWidth> times =
      NeighboursAt<kWidth>(args.times + row * args.times_stride + col);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) y.at[i] = __fmul_rn(y.at[i], times.at[i]);
  return y;
}

template <int kWidth>
__device__ int64_t FirstColumn() {
  return (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
}

// grid: (columns, row). A thread finishes kWidth columns.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) FinishKernel(const FinishArgs args) {
  const int64_t col = FirstColumn<kWidth>();
  if (col >= args.cols) return;
  float* y = args.y + blockIdx.y * args.y_stride + col;
  *reinterpret_cast<Neighbours<float, kWidth>*>(y) = FinishedAt<kWidth>(args, blockIdx.y, col);
}

// As FinishKernel, for an output of its own.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) RoundFinishedKernel(const RoundFinishedArgs args) {
  const int64_t col = FirstColumn<kWidth>();
  if (col >= args.finish.cols) return;
  const Neighbours<float, kWidth> y = FinishedAt<kWidth>(args.finish, blockIdx.y, col);
  Neighbours<T, kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) rounded.at[i] = Narrow<T>(y.at[i]);
  T* to = static_cast<T*>(args.rounded) + blockIdx.y * args.rounded_stride + col;
  *reinterpret_cast<Neighbours<T, kWidth>*>(to) = rounded;
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

dim3 GridOf(const FinishArgs& args, int64_t width) {
  return dim3(Blocks(args.cols, int64_t{kThreads} * width), static_cast<unsigned>(args.rows));
}

template <int kWidth>
void LaunchFinish(const FinishArgs& args, Stream& stream) {
  LaunchKernel(FinishKernel<kWidth>, GridOf(args, kWidth), kThreads, args, stream,
               "matmul finish launch");
}

template <typename T>
void LaunchRoundFinished(const RoundFinishedArgs& args, Stream& stream) {
  constexpr const char* kWhat = "matmul finish and rounding launch";
  const bool wide = TakesWide(args.finish) && args.rounded_stride % kWide == 0 &&
                    IsAligned(args.rounded, kWide * int64_t{sizeof(T)});
  if (wide) {
    LaunchKernel(RoundFinishedKernel<T, kWide>, GridOf(args.finish, kWide), kThreads, args, stream,
                 kWhat);
  } else {
    LaunchKernel(RoundFinishedKernel<T, 1>, GridOf(args.finish, 1), kThreads, args, stream, kWhat);
  }
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
  if (!args.changes()) return;
  TakesWide(args) ? LaunchFinish<kWide>(args, stream) : LaunchFinish<1>(args, stream);
}

void RoundFinishedAsync(const RoundFinishedArgs& args, Stream& stream) {
  if (args.finish.rows == 0 || args.finish.cols == 0) return;
  if (args.dtype == DType::kF16) {
    LaunchRoundFinished<__half>(args, stream);
  } else {
    LaunchRoundFinished<__nv_bfloat16>(args, stream);
  }
}

}  // namespace spillway::kernels
