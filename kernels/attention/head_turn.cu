#include "kernels/attention/head_turn.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kLaneElements = static_cast<int>(kMaxTurnedDim) / kWarp;

// grid: (heads in blocks of warps, row). A warp turns one head; element n * kWarp + lane is in the
// lane's own[n]. Lanes past the end of a short head hold zeros.
__global__ void __launch_bounds__(kThreads) TurnKernel(const HeadTurnArgs args) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (head >= args.num_heads) return;  // the whole warp
  const int dim = static_cast<int>(args.head_dim);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float* x = args.x + blockIdx.y * args.stride + head * args.head_dim;
  float own[kLaneElements];
#pragma unroll
  for (int n = 0; n < kLaneElements; ++n) {
    const int d = n * kWarp + lane;
    own[n] = d < dim ? x[d] : 0.0F;
  }
  for (int apart = 1; apart < kWarp && apart < dim; apart *= 2) {
#pragma unroll
    for (int n = 0; n < kLaneElements; ++n) {
      const float other = __shfl_xor_sync(kAllLanes, own[n], apart);
      own[n] = (lane & apart) != 0 ? other - own[n] : own[n] + other;
    }
  }
#pragma unroll
  for (int apart = 1; apart < kLaneElements; apart *= 2) {
    if (apart * kWarp >= dim) break;
#pragma unroll
    for (int n = 0; n < kLaneElements; ++n) {
      if ((n & apart) != 0) continue;
      const float low = own[n];
      const float high = own[n + apart];
      own[n] = low + high;
      own[n + apart] = low - high;
    }
  }
  const float scale = 1.0F / sqrtf(static_cast<float>(dim));
#pragma unroll
  for (int n = 0; n < kLaneElements; ++n) {
    const int d = n * kWarp + lane;
    if (d < dim) x[d] = own[n] * scale;
  }
}

}  // namespace

void TurnHeadsAsync(const HeadTurnArgs& args, Stream& stream) {
  if (args.rows == 0) return;
  SPILLWAY_CHECK((args.head_dim & (args.head_dim - 1)) == 0 && args.head_dim <= kMaxTurnedDim);
  const dim3 grid(Blocks(args.num_heads, kWarps), static_cast<unsigned>(args.rows));
  LaunchKernel(TurnKernel, grid, kThreads, args, stream, "head_turn launch");
}

}  // namespace spillway::kernels
