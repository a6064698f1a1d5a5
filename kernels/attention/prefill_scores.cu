#include "kernels/attention/decode_attention.h"  // kMaxGpuHeadDim
#include "kernels/attention/prefill_attention.h"
#include "kernels/attention/prefill_tile.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

// One element of padding: the 64 threads that each sum a column then read 64 different banks.
constexpr int kWeightStride = kTileKeys + 1;

// A warp's 16 queries against a tile of keys.
struct TileOfScores {
  const AttentionRow& row;
  int64_t head;
  int64_t first_query;
  int64_t first_key;
};

// Their weights, 0 where the key is masked or there is no query.
__device__ void StoreWeights(const PrefillAttentionArgs& args, const TileOfScores& tile,
                             const float (&scores)[kKeyColumns][4], float* weights) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t query = tile.first_query + lane / 4 + half * 8;
    const bool is_query = query < tile.row.num_new;
    const float log_sum =
        is_query ? args.log_sums[(tile.row.token_offset + query) * args.num_heads + tile.head]
                 : 0.0F;
    float* to =
        weights + (query - tile.first_query + threadIdx.x / kWarp * kWarpQueries) * kWeightStride;
#pragma unroll
    for (int column = 0; column < kKeyColumns; ++column) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = column * 8 + 2 * (lane % 4) + i;
        const bool is_seen = is_query && tile.first_key + key <= tile.row.num_past + query;
        to[key] = is_seen ? __expf(scores[column][2 * half + i] - log_sum) : 0.0F;
      }
    }
  }
}

// grid: (key tile, head). Loops over the queries in order; the tile's keys stay in shared memory.
template <typename Format, int kDim>
__global__ void __launch_bounds__(kTileThreads) PrefillScoresKernel(const PrefillScoresArgs args) {
  using T = typename Format::Factor;
  alignas(16) __shared__ SharedTile<T, kDim> keys;
  __shared__ float weights[kTileQueries * kWeightStride];
  const PrefillAttentionArgs& attention = args.attention;
  const RowTile tile = args.key_tiles[blockIdx.x];
  const AttentionRow& row = attention.rows[tile.row];
  const int64_t head = blockIdx.y;
  const TileSource source = {row.kv, attention.layout,
                             head / (attention.num_heads / attention.layout.num_kv_heads),
                             row.num_past + row.num_new};
  ClearPadding(attention.layout.head_dim, keys);
  LoadTile<Format>(source, KvPart::kKey, tile.begin, keys);
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();
  const int64_t slot = tile.begin + threadIdx.x;
  const bool sums = threadIdx.x < kTileKeys && slot < source.num_keys;
  float* score = row.token_scores + head * args.token_scores_stride + slot;
  float sum = sums && slot < row.num_past ? *score : 0.0F;
  // Queries before the tile's first key see none of it.
  const int64_t unseen = tile.begin > row.num_past ? tile.begin - row.num_past : 0;
  for (int64_t first = unseen / kTileQueries * kTileQueries; first < row.num_new;
       first += kTileQueries) {
    const int64_t first_query = first + threadIdx.x / kWarp * kWarpQueries;
    QueryFragments<T, kDim> q;
    q.Load(attention, row, head, first_query);
    float scores[kKeyColumns][4];
    ScoreTile(q, keys, scores);
    StoreWeights(attention, {row, head, first_query, tile.begin}, scores, weights);
    __syncthreads();
    if (sums) {
      for (int query = 0; query < kTileQueries; ++query) {
        sum += weights[query * kWeightStride + threadIdx.x];
      }
    }
    __syncthreads();
  }
  if (sums) *score = sum;
}

template <typename Format>
void LaunchDims(const PrefillScoresArgs& args, Stream& stream) {
  const dim3 grid(static_cast<unsigned>(args.num_key_tiles),
                  static_cast<unsigned>(args.attention.num_heads));
  const int64_t dim = args.attention.layout.head_dim;
  if (dim <= 32) {
    LaunchKernel(PrefillScoresKernel<Format, 32>, grid, kTileThreads, args, stream,
                 "prefill_scores launch");
  } else if (dim <= 64) {
    LaunchKernel(PrefillScoresKernel<Format, 64>, grid, kTileThreads, args, stream,
                 "prefill_scores launch");
  } else if (dim <= 80) {
    LaunchKernel(PrefillScoresKernel<Format, 80>, grid, kTileThreads, args, stream,
                 "prefill_scores launch");
  } else {
    LaunchKernel(PrefillScoresKernel<Format, 128>, grid, kTileThreads, args, stream,
                 "prefill_scores launch");
  }
}

}  // namespace

void PrefillScoresAsync(const PrefillScoresArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.attention.layout.head_dim % kVectorElements == 0 &&
                 args.attention.layout.head_dim <= kMaxGpuHeadDim);
  if (args.num_key_tiles == 0) return;
  WithFormat(args.attention.kv_dtype, args.attention.layout.bits,
             [&](auto format) { LaunchDims<decltype(format)>(args, stream); });
}

}  // namespace spillway::kernels
