#include <algorithm>

#include "kernels/rows/fetch_host.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 16;  // enough reads in flight for the link, few enough to start soon

__global__ void __launch_bounds__(kThreads) FetchHostKernel(const FetchHostArgs args) {
  const int64_t vectors = (args.bytes + 15) / 16;
  const auto* from = reinterpret_cast<const uint4*>(args.from);
  auto* to = reinterpret_cast<uint4*>(args.to);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < vectors;
       at += step) {
    to[at] = __ldcv(from + at);  // the host has written it since it was last read
  }
}

}  // namespace

void FetchHostAsync(const FetchHostArgs& args, Stream& stream) {
  if (args.bytes == 0) return;
  const int64_t blocks = std::min<int64_t>(kMaxBlocks, Blocks(args.bytes, 16 * kThreads));
  LaunchKernel(FetchHostKernel, static_cast<unsigned>(blocks), kThreads, args, stream,
               "fetch_host launch");
}

}  // namespace spillway::kernels
