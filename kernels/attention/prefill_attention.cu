#include <cmath>

#include "kernels/attention/decode_attention.h"  // kMaxGpuHeadDim
#include "kernels/attention/prefill_attention.h"
#include "kernels/attention/prefill_tile.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

// A warp's state: of each lane's two queries the maximum and this lane's part of the sum, and the
// weighted values in an accumulator's layout.
template <int kDim>
struct Running {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};
  float weighted[kDim / 8][4] = {};
};

// Begins the softmax of a lane's queries with their head's sink, which one of the four lanes that
// share a query adds to the sum.
template <int kDim>
__device__ void StartWithSink(float sink, Running<kDim>& running) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    running.maximum[half] = sink;
    running.sum[half] = threadIdx.x % 4 == 0 ? 1.0F : 0.0F;
  }
}

// Turns scores into weights relative to the new maximum. `position`: of the lane's first query.
// Column 0 is key `first`.
template <int kDim>
__device__ void Softmax(float (&scores)[kKeyColumns<kDim>][4], const PrefillAttentionArgs& args,
                        int64_t position, int64_t first, Running<kDim>& running) {
  const int64_t key = first + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float maximum = running.maximum[half];
#pragma unroll
    for (int column = 0; column < kKeyColumns<kDim>; ++column) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const bool sees = Sees(position + half * 8, key + column * 8 + i % 2, args.window);
        scores[column][i] = sees ? SoftCapped(scores[column][i], args.soft_cap) : -INFINITY;
        maximum = fmaxf(maximum, scores[column][i]);
      }
    }
    maximum = MaxOverLanes<4>(maximum);
    // A query whose window begins behind the tile has a maximum of -inf, and -inf - -inf would be
    // NaN.
    const float base = maximum == -INFINITY ? 0.0F : maximum;
    const float shrink = __expf(running.maximum[half] - base);
    running.maximum[half] = maximum;
    running.sum[half] *= shrink;
#pragma unroll
    for (auto& weighted : running.weighted) {
      weighted[2 * half] *= shrink;
      weighted[2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int column = 0; column < kKeyColumns<kDim>; ++column) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[column][i] = __expf(scores[column][i] - base);
        running.sum[half] += scores[column][i];
      }
    }
  }
}

// weighted += weights V; an accumulator of two columns of keys is, rounded, a factor's fragment.
template <typename T, int kDim>
__device__ void AddValues(const float (&weights)[kKeyColumns<kDim>][4],
                          const SharedTile<T, kDim>& values, Running<kDim>& running) {
  const TilePlace from = ValueAddress(threadIdx.x % kWarp);
#pragma unroll
  for (int step = 0; step < kKeysOf<kDim> / 16; ++step) {
    const auto& low = weights[2 * step];
    const auto& high = weights[2 * step + 1];
    const Fragment4 a = {{NarrowPair<T>(low[0], low[1]), NarrowPair<T>(low[2], low[3]),
                          NarrowPair<T>(high[0], high[1]), NarrowPair<T>(high[2], high[3])}};
#pragma unroll
    for (int column = 0; column < kDim / 8; column += 2) {
      const Fragment4 b =
          LoadMatrices<true>(&values.values[(step * 16 + from.row) * SharedTile<T, kDim>::kStride +
                                            column * 8 + from.col]);
      MultiplyAdd<T>(running.weighted[column], a, b.words[0], b.words[1]);
      MultiplyAdd<T>(running.weighted[column + 1], a, b.words[2], b.words[3]);
    }
  }
}

template <int kDim>
__device__ void Store(const PrefillAttentionArgs& args, const AttentionRow& row, int64_t head,
                      int64_t first, const Running<kDim>& running) {
  const int lane = threadIdx.x % kWarp;
  const int64_t dim = args.layout.head_dim;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = SumOverLanes<4>(running.sum[half]);
    const int64_t query = first + lane / 4 + half * 8;
    if (query >= row.num_new) continue;
    const int64_t token = row.token_offset + query;
    float* out = args.out + token * args.out_stride + head * dim;
#pragma unroll
    for (int column = 0; column < kDim / 8; ++column) {
      const int64_t d = column * 8 + 2 * (lane % 4);
      if (d >= dim) continue;
      out[d] = running.weighted[column][2 * half] / sum;
      out[d + 1] = running.weighted[column][2 * half + 1] / sum;
    }
    if (args.log_sums != nullptr && lane % 4 == 0) {
      args.log_sums[token * args.num_heads + head] = running.maximum[half] + logf(sum);
    }
  }
}

// grid: (tile, head).
template <typename Format, int kDim>
__global__ void __launch_bounds__(kTileThreads) PrefillKernel(const PrefillAttentionArgs args) {
  using Keys = typename Format::Keys;
  using Values = typename Format::Values;
  alignas(16) __shared__ SharedTile<typename Keys::Factor, kDim> keys;
  alignas(16) __shared__ SharedTile<typename Values::Factor, kDim> values;
  const RowTile tile = args.tiles[blockIdx.x];
  const AttentionRow& row = args.rows[tile.row];
  const int64_t head = blockIdx.y;
  const TileSource source = {SlotsOf(row), args.layout,
                             head / (args.num_heads / args.layout.num_kv_heads),
                             KeysOfTile(tile.begin, row.num_past, row.num_new), args.means};
  const int64_t first_query = tile.begin + threadIdx.x / kWarp * kWarpQueries;
  const int64_t position = row.num_past + first_query + threadIdx.x % kWarp / 4;
  ClearPadding(args.layout.head_dim, keys);
  ClearPadding(args.layout.head_dim, values);
  QueryFragments<typename Keys::Factor, kDim> q;
  q.Load(args, row, head, first_query);
  Running<kDim> running;
  if (args.sinks != nullptr) StartWithSink(args.sinks[head], running);
  const int64_t begin = FirstTile<kDim>(row.num_past + tile.begin, args.window);
  // Two groups of copies are under way at most: while one half of a step computes, the other half's
  // tile is copied.
  LoadTile<Keys>(source, begin, keys);
  CommitCopies();
  LoadTile<Values>(source, begin, values);
  CommitCopies();
  for (int64_t first = begin; first < source.num_keys; first += kKeysOf<kDim>) {
    const int64_t next = first + kKeysOf<kDim>;
    WaitForCopies<1>();  // keys
    __syncthreads();
    if (args.turns.exist()) {
      TurnTile(args.turns, first, source.num_keys, keys);
      __syncthreads();
    }
    float scores[kKeyColumns<kDim>][4];
    ScoreTile(q, keys, scores);
    __syncthreads();
    if (next < source.num_keys) LoadTile<Keys>(source, next, keys);
    CommitCopies();
    Softmax(scores, args, position, first, running);
    WaitForCopies<1>();  // values
    __syncthreads();
    AddValues(scores, values, running);
    __syncthreads();
    if (next < source.num_keys) LoadTile<Values>(source, next, values);
    CommitCopies();
  }
  Store(args, row, head, first_query, running);
}

template <typename Format>
void LaunchDims(const PrefillAttentionArgs& args, Stream& stream) {
  const dim3 grid(static_cast<unsigned>(args.num_tiles), static_cast<unsigned>(args.num_heads));
  WithTileDim(args.layout.head_dim, [&](auto dim) {
    LaunchKernel(PrefillKernel<Format, decltype(dim)::value>, grid, kTileThreads, args, stream,
                 "prefill_attention launch");
  });
}

}  // namespace

void PrefillAttentionAsync(const PrefillAttentionArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.layout.head_dim % kVectorElements == 0 &&
                 args.layout.head_dim <= kMaxGpuHeadDim);
  if (args.num_tiles == 0) return;
  WithFormat(args.kv_dtype, args.layout.bits,
             [&](auto format) { LaunchDims<decltype(format)>(args, stream); });
}

}  // namespace spillway::kernels
