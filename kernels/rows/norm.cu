#include "kernels/rows/norm.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;

// Offset + weight, or 1 without weights.
__device__ float WeightAt(const float* weight, float offset, int64_t col) {
  if (weight == nullptr) return 1.0F;
  return offset == 0.0F ? weight[col] : offset + weight[col];  // 0 + -0 is not -0
}

__device__ float MeanOf(const float* x, int64_t cols, float* shared) {
  float sum = 0.0F;
  for (int64_t col = threadIdx.x; col < cols; col += kThreads) sum += x[col];
  return SumOverBlock<kThreads / kWarp>(sum, shared) / static_cast<float>(cols);
}

// Mean first, then the sum of squared differences: one pass over both loses the digits that the
// mean's square takes. The RMS norm is the layer norm around zero.
template <typename Store>
__device__ void NormRow(const NormArgs& args, Store store) {
  __shared__ float shared[kThreads / kWarp];
  const float* x = args.x + blockIdx.x * args.x_stride;
  const float* plus = args.plus == nullptr ? nullptr : args.plus + blockIdx.x * args.plus_stride;
  const float mean = args.kind == NormKind::kLayer ? MeanOf(x, args.cols, shared) : 0.0F;
  float squares = 0.0F;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    squares += (x[col] - mean) * (x[col] - mean);
  }
  const float variance =
      SumOverBlock<kThreads / kWarp>(squares, shared) / static_cast<float>(args.cols);
  const float scale = 1.0F / sqrtf(variance + args.epsilon);
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    const float weight = WeightAt(args.weight, args.weight_offset, col);
    const float bias = args.bias != nullptr ? args.bias[col] : 0.0F;
    const float value = (x[col] - mean) * scale * weight + bias;
    store(col, plus == nullptr ? value : value + plus[col]);
  }
}

// One block a row.
__global__ void __launch_bounds__(kThreads) NormKernel(const NormArgs args) {
  float* y = args.y + blockIdx.x * args.y_stride;
  NormRow(args, [&](int64_t col, float value) { y[col] = value; });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) RoundedNormKernel(const RoundedNormArgs args) {
  T* y = static_cast<T*>(args.rounded) + blockIdx.x * args.norm.cols;
  NormRow(args.norm, [&](int64_t col, float value) { y[col] = Narrow<T>(value); });
}

// A warp norms one head; heads are counted over all rows.
__global__ void __launch_bounds__(kThreads) HeadNormKernel(const HeadNormArgs args) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (head >= args.rows * args.num_heads) return;  // the whole warp
  const int64_t lane = threadIdx.x % kWarp;
  float* x = args.x + head / args.num_heads * args.x_stride + head % args.num_heads * args.head_dim;
  float squares = 0.0F;
  for (int64_t d = lane; d < args.head_dim; d += kWarp) squares += x[d] * x[d];
  const float mean_square = SumOverLanes<kWarp>(squares) / static_cast<float>(args.head_dim);
  const float scale = 1.0F / sqrtf(mean_square + args.epsilon);
  for (int64_t d = lane; d < args.head_dim; d += kWarp)
    x[d] = x[d] * scale * WeightAt(args.weight, args.weight_offset, d);
}

}  // namespace

void NormAsync(const NormArgs& args, Stream& stream) {
  if (args.rows == 0) return;
  LaunchKernel(NormKernel, static_cast<unsigned>(args.rows), kThreads, args, stream, "norm launch");
}

void RoundedNormAsync(const RoundedNormArgs& args, Stream& stream) {
  if (args.norm.rows == 0) return;
  const bool half = args.dtype == DType::kF16;
  LaunchKernel(half ? RoundedNormKernel<__half> : RoundedNormKernel<__nv_bfloat16>,
               static_cast<unsigned>(args.norm.rows), kThreads, args, stream,
               "rounded norm launch");
}

void HeadNormAsync(const HeadNormArgs& args, Stream& stream) {
  if (args.rows == 0 || args.num_heads == 0) return;
  LaunchKernel(HeadNormKernel, Blocks(args.rows * args.num_heads, kThreads / kWarp), kThreads, args,
               stream, "head_norm launch");
}

}  // namespace spillway::kernels
