#include "kernels/attention/kv_copy.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kBlocksOfRun = 16;

struct CopyArgs {
  const KvRun* runs;
};

// grid: (part of a run, run).
__global__ void __launch_bounds__(kThreads) CopyKvKernel(const CopyArgs args) {
  const KvRun& run = args.runs[blockIdx.y];
  const auto* from = reinterpret_cast<const uint4*>(run.from);
  auto* to = reinterpret_cast<uint4*>(run.to);
  const int64_t count = run.bytes / static_cast<int64_t>(sizeof(uint4));
  constexpr int64_t kStride = int64_t{kBlocksOfRun} * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += kStride)
    to[at] = from[at];
}

}  // namespace

void CopyKvAsync(std::span<const KvRun> runs, Stream& stream) {
  constexpr std::size_t kMostRuns = 65535;  // what a grid has rows for
  while (!runs.empty()) {
    const std::size_t count = runs.size() < kMostRuns ? runs.size() : kMostRuns;
    LaunchKernel(CopyKvKernel, dim3(kBlocksOfRun, static_cast<unsigned>(count)), kThreads,
                 CopyArgs{runs.data()}, stream, "kv_copy launch");
    runs = runs.subspan(count);
  }
}

}  // namespace spillway::kernels
