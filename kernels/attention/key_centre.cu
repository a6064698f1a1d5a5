#include <cmath>

#include "kernels/attention/head_turn.h"
#include "kernels/attention/key_centre.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 128;

// Numbers of pairs, and of elements behind them: what of a head positions do not turn.
__device__ int64_t NumTurned(const HeadRotation& rotation) { return rotation.dims / 2; }
__device__ int64_t NumParts(const HeadRotation& rotation, int64_t head_dim) {
  return rotation.dims / 2 + head_dim - rotation.dims;
}

// grid: (KV head). A thread sums a pair, or an element behind the pairs. Once for each layer of a
// run. Angles are those of TurnOf (kernels/kv/key_turns.h).
__global__ void __launch_bounds__(kThreads) SumKeysKernel(const KeySumArgs args) {
  const HeadRotation& rotation = args.rotation;
  const int64_t of_head = blockIdx.x * args.head_dim;
  for (int64_t part = threadIdx.x; part < NumParts(rotation, args.head_dim); part += kThreads) {
    const bool turned = part < NumTurned(rotation);
    const int64_t first = turned ? rotation.First(part) : part + rotation.dims / 2;
    const int64_t second = turned ? rotation.Second(part) : first;
    double sum_first = 0.0;
    double sum_second = 0.0;
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* key = args.keys + row * args.stride + of_head;
      const double a = key[first];
      const double b = key[second];
      const double angle =
          turned ? static_cast<float>(args.first_position + row) * args.inverse_frequencies[part]
                 : 0.0F;
      sum_first += a * cos(angle) + b * sin(angle);
      sum_second += b * cos(angle) - a * sin(angle);
    }
    args.sums[of_head + first] += sum_first;
    if (turned) args.sums[of_head + second] += sum_second;
  }
}

// grid: (elements in blocks).
__global__ void __launch_bounds__(kThreads) MakeKeyMeansKernel(const KeyMeanArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.size) return;
  const double mean = args.sums[i] / static_cast<double>(args.num_keys > 1 ? args.num_keys : 1);
  const bool is_finite = mean - mean == 0.0;
  args.means[i] = is_finite ? static_cast<float>(mean) : 0.0F;
  args.sums[i] = 0.0;
}

// grid: (span, KV head). A thread turns a pair, or copies an element behind the pairs.
__global__ void __launch_bounds__(kThreads) TurnMeansKernel(const SpanMeanArgs args) {
  const HeadRotation& rotation = args.rotation;
  const float* mean = args.means + blockIdx.y * args.head_dim;
  const int64_t span = args.first + blockIdx.x;
  const float* cosines = args.turns + span * args.turns_stride;
  float* to = args.table + (blockIdx.y * args.num_spans + span) * args.head_dim;
  for (int64_t part = threadIdx.x; part < NumParts(rotation, args.head_dim); part += kThreads) {
    if (part >= NumTurned(rotation)) {
      const int64_t d = part + rotation.dims / 2;
      to[d] = mean[d];
      continue;
    }
    const float cosine = cosines[part];
    const float sine = cosines[rotation.dims / 2 + part];
    const float a = mean[rotation.First(part)];
    const float b = mean[rotation.Second(part)];
    to[rotation.First(part)] = a * cosine - b * sine;
    to[rotation.Second(part)] = b * cosine + a * sine;
  }
}

// Puts a row's elements in their places. grid: (span, KV head).
__global__ void __launch_bounds__(kThreads) PlaceMeansKernel(const SpanMeanArgs args) {
  __shared__ float row[kMaxTurnedDim];
  const int64_t dim = args.head_dim;
  float* table = args.table + (blockIdx.y * args.num_spans + args.first + blockIdx.x) * dim;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) row[d] = table[d];
  __syncthreads();
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) table[MeanPlace(d, dim)] = row[d];
}

// grid: (row).
__global__ void __launch_bounds__(kThreads) CentreKeysKernel(const CentreKeysArgs args) {
  const int64_t position = args.positions[blockIdx.x];
  float* keys = args.keys + blockIdx.x * args.stride;
  for (int64_t i = threadIdx.x; i < args.num_kv_heads * args.head_dim; i += kThreads) {
    const int64_t head = i / args.head_dim;
    const float* mean = args.means.At(head, position, args.head_dim);
    keys[i] -= mean[MeanPlace(i % args.head_dim, args.head_dim)];
  }
}

}  // namespace

void SumKeysAsync(const KeySumArgs& args, Stream& stream) {
  if (args.rows == 0) return;
  LaunchKernel(SumKeysKernel, dim3(static_cast<unsigned>(args.num_kv_heads)), kThreads, args,
               stream, "sums of keys launch");
}

void MakeKeyMeansAsync(const KeyMeanArgs& args, Stream& stream) {
  LaunchKernel(MakeKeyMeansKernel, dim3(Blocks(args.size, kThreads)), kThreads, args, stream,
               "means of keys launch");
}

void FillSpanMeansAsync(const SpanMeanArgs& args, Stream& stream) {
  if (args.first >= args.end) return;
  SPILLWAY_CHECK(args.end <= args.num_spans && args.head_dim <= kMaxTurnedDim);
  const int64_t num_filled = args.end - args.first;
  const dim3 grid(static_cast<unsigned>(num_filled), static_cast<unsigned>(args.num_kv_heads));
  LaunchKernel(TurnMeansKernel, grid, kThreads, args, stream, "means of spans launch");
  TurnHeadsAsync({args.table + args.first * args.head_dim, args.num_spans * args.head_dim,
                  args.num_kv_heads, num_filled, args.head_dim},
                 stream);
  LaunchKernel(PlaceMeansKernel, grid, kThreads, args, stream, "places of means launch");
}

void CentreKeysAsync(const CentreKeysArgs& args, Stream& stream) {
  if (args.rows == 0) return;
  LaunchKernel(CentreKeysKernel, dim3(static_cast<unsigned>(args.rows)), kThreads, args, stream,
               "centre_keys launch");
}

}  // namespace spillway::kernels
