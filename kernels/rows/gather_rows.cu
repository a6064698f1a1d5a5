#include "kernels/rows/gather_rows.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) GatherRowsKernel(const GatherRowsArgs args) {
  const float* from = args.rows.data()[blockIdx.x] + args.column;
  float* y = args.y + blockIdx.x * args.y_stride;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) y[col] = from[col];
}

}  // namespace

void GatherRowsAsync(const GatherRowsArgs& args, Stream& stream) {
  if (args.rows.empty()) return;
  LaunchKernel(GatherRowsKernel, static_cast<unsigned>(args.rows.size()), kThreads, args, stream,
               "gather_rows launch");
}

}  // namespace spillway::kernels
