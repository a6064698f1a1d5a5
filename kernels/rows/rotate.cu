#include <algorithm>

#include "kernels/rows/rotate.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;

// One block a row, which computes the turns once for all heads.
__global__ void __launch_bounds__(kThreads) RotateKernel(const RotateArgs args) {
  __shared__ float cosines[kMaxRotaryDims / 2];
  __shared__ float sines[kMaxRotaryDims / 2];
  const int head_pairs = static_cast<int>(args.dims) / 2;
  const auto position = static_cast<float>(args.positions[blockIdx.x]);
  const int table = args.tables == nullptr ? 0 : args.tables[blockIdx.x];
  const float* frequencies = args.inverse_frequencies + table * head_pairs;
  for (int pair = threadIdx.x; pair < head_pairs; pair += kThreads) {
    float sine;
    float cosine;
    sincosf(position * frequencies[pair], &sine, &cosine);
    cosines[pair] = cosine * args.factor;
    sines[pair] = sine * args.factor;
  }
  __syncthreads();
  const bool halves = args.pairs == RopePairs::kHalves;
  const int num_pairs = static_cast<int>(args.num_heads) * head_pairs;
  for (int at = threadIdx.x; at < num_pairs; at += kThreads) {
    const int pair = at % head_pairs;
    float* x = args.x + blockIdx.x * args.x_stride + at / head_pairs * args.head_dim;
    float& first = x[halves ? pair : 2 * pair];
    float& second = x[halves ? pair + head_pairs : 2 * pair + 1];
    const float a = first;
    const float b = second;
    first = a * cosines[pair] - b * sines[pair];
    second = b * cosines[pair] + a * sines[pair];
  }
}

}  // namespace

void RotateAsync(const RotateArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.dims % 2 == 0 && args.dims <= std::min(args.head_dim, kMaxRotaryDims));
  if (args.rows == 0) return;
  LaunchKernel(RotateKernel, static_cast<unsigned>(args.rows), kThreads, args, stream,
               "rotate launch");
}

}  // namespace spillway::kernels
