#include "kernels/rows/expert_rows.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;

// One block a row.
__global__ void __launch_bounds__(kThreads) TakeRowsKernel(const TakeExpertRowsArgs args) {
  const float* from = args.rows.data()[blockIdx.x] + args.column;
  float* y = args.y + blockIdx.x * args.y_stride;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) y[col] = from[col];
}

__global__ void __launch_bounds__(kThreads) AddRowsKernel(const AddExpertRowsArgs args) {
  const float weight = args.weights.data()[blockIdx.x];
  const float* x = args.x + blockIdx.x * args.x_stride;
  float* y = args.rows.data()[blockIdx.x] + args.column;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads)
    y[col] = __fadd_rn(y[col], __fmul_rn(weight, x[col]));
}

}  // namespace

void TakeExpertRowsAsync(const TakeExpertRowsArgs& args, Stream& stream) {
  if (args.rows.empty()) return;
  LaunchKernel(TakeRowsKernel, static_cast<unsigned>(args.rows.size()), kThreads, args, stream,
               "take_expert_rows launch");
}

void AddExpertRowsAsync(const AddExpertRowsArgs& args, Stream& stream) {
  if (args.rows.empty()) return;
  LaunchKernel(AddRowsKernel, static_cast<unsigned>(args.rows.size()), kThreads, args, stream,
               "add_expert_rows launch");
}

}  // namespace spillway::kernels
