#include "kernels/rows/soft_cap.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 8;  // of a thread

__global__ void __launch_bounds__(kThreads) SoftCapKernel(const SoftCapArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kElements) + threadIdx.x;
#pragma unroll
  for (int element = 0; element < kElements; ++element) {
    const int64_t at = first + element * kThreads;
    if (at < args.count) args.x[at] = SoftCapped(args.scale * args.x[at], args.cap);
  }
}

}  // namespace

void SoftCapAsync(const SoftCapArgs& args, Stream& stream) {
  if (args.count == 0) return;
  LaunchKernel(SoftCapKernel, Blocks(args.count, kThreads * kElements), kThreads, args, stream,
               "soft_cap launch");
}

}  // namespace spillway::kernels
