#include "kernels/rows/norm.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;

// One block a row. Mean first, then the sum of squared differences: one pass over both loses the
// digits that the mean's square takes.
__global__ void __launch_bounds__(kThreads) NormKernel(const NormArgs args) {
  __shared__ float shared[kThreads / kWarp];
  const float* x = args.x + blockIdx.x * args.x_stride;
  float* y = args.y + blockIdx.x * args.y_stride;
  const auto cols = static_cast<float>(args.cols);
  float sum = 0.0F;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) sum += x[col];
  const float mean = SumOverBlock<kThreads / kWarp>(sum, shared) / cols;
  float squares = 0.0F;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    squares += (x[col] - mean) * (x[col] - mean);
  }
  const float variance = SumOverBlock<kThreads / kWarp>(squares, shared) / cols;
  const float scale = 1.0F / sqrtf(variance + args.epsilon);
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    const float weight = args.weight != nullptr ? args.weight[col] : 1.0F;
    const float bias = args.bias != nullptr ? args.bias[col] : 0.0F;
    y[col] = (x[col] - mean) * scale * weight + bias;
  }
}

}  // namespace

void NormAsync(const NormArgs& args, Stream& stream) {
  if (args.rows == 0) return;
  LaunchKernel(NormKernel, static_cast<unsigned>(args.rows), kThreads, args, stream, "norm launch");
}

}  // namespace spillway::kernels
