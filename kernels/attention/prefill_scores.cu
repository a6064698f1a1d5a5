#include "kernels/attention/decode_attention.h"  // kMaxGpuHeadDim
#include "kernels/attention/prefill_attention.h"
#include "kernels/attention/prefill_tile.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

// One element of padding: the threads that each sum a column then read different banks.
template <int kDim>
constexpr int kWeightStride = kKeysOf<kDim> + 1;

// A warp's 16 queries against a tile of keys.
struct TileOfScores {
  const AttentionRow& row;
  int64_t head;
  int64_t first_query;
  int64_t first_key;
};

// Their weights, 0 where the key is masked or there is no query.
template <int kDim>
__device__ void StoreWeights(const PrefillAttentionArgs& args, const TileOfScores& tile,
                             const float (&scores)[kKeyColumns<kDim>][4], float* weights) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t query = tile.first_query + lane / 4 + half * 8;
    const bool is_query = query < tile.row.num_new;
    const float log_sum =
        is_query ? args.log_sums[(tile.row.token_offset + query) * args.num_heads + tile.head]
                 : 0.0F;
    float* to = weights + (query - tile.first_query + threadIdx.x / kWarp * kWarpQueries) *
                              kWeightStride<kDim>;
#pragma unroll
    for (int column = 0; column < kKeyColumns<kDim>; ++column) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = column * 8 + 2 * (lane % 4) + i;
        const bool is_seen =
            is_query && Sees(tile.row.num_past + query, tile.first_key + key, args.window);
        const float score = SoftCapped(scores[column][2 * half + i], args.soft_cap);
        to[key] = is_seen ? __expf(score - log_sum) : 0.0F;
      }
    }
  }
}

// A tile's keys, in shared memory, and the weights of kTileQueries queries.
template <typename T, int kDim>
struct ScoresMemory {
  SharedTile<T, kDim> keys;
  float weights[kTileQueries * kWeightStride<kDim>];
};

// Adds up the weights of the keys from `first_key` on, over the queries in order; the keys stay in
// shared memory.
template <typename Keys, int kDim>
__device__ void SumTile(const PrefillScoresArgs& args, const AttentionRow& row, int64_t first_key,
                        ScoresMemory<typename Keys::Factor, kDim>& shared) {
  const PrefillAttentionArgs& attention = args.attention;
  const int64_t head = blockIdx.y;
  const TileSource source = {SlotsOf(row), attention.layout,
                             head / (attention.num_heads / attention.layout.num_kv_heads),
                             row.num_past + row.num_new, attention.means};
  LoadTile<Keys>(source, first_key, shared.keys);
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();
  if (attention.turns.exist()) {
    TurnTile(attention.turns, first_key, source.num_keys, shared.keys);
    __syncthreads();
  }
  const int64_t slot = first_key + threadIdx.x;
  const bool sums = threadIdx.x < kKeysOf<kDim> && slot < source.num_keys;
  float* score = row.token_scores + head * args.token_scores_stride + slot;
  float sum = sums && slot < row.num_past ? *score : 0.0F;
  // Queries before the tile's first key see none of it, nor do those whose window is behind it.
  const int64_t unseen = first_key > row.num_past ? first_key - row.num_past : 0;
  const int64_t last_seen = first_key + kKeysOf<kDim> - 1 + attention.window - 1 - row.num_past;
  const int64_t end =
      attention.window == 0 || last_seen >= row.num_new ? row.num_new : last_seen + 1;
  for (int64_t first = unseen / kTileQueries * kTileQueries; first < end; first += kTileQueries) {
    const int64_t first_query = first + threadIdx.x / kWarp * kWarpQueries;
    QueryFragments<typename Keys::Factor, kDim> q;
    q.Load(attention, row, head, first_query);
    float scores[kKeyColumns<kDim>][4];
    ScoreTile(q, shared.keys, scores);
    StoreWeights<kDim>(attention, {row, head, first_query, first_key}, scores, shared.weights);
    __syncthreads();
    if (sums) {
      for (int query = 0; query < kTileQueries; ++query) {
        sum += shared.weights[query * kWeightStride<kDim> + threadIdx.x];
      }
    }
    __syncthreads();
  }
  if (sums) *score = sum;
}

// grid: (key tile, head).
template <typename Keys, int kDim>
__global__ void __launch_bounds__(kTileThreads) PrefillScoresKernel(const PrefillScoresArgs args) {
  alignas(16) __shared__ ScoresMemory<typename Keys::Factor, kDim> shared;
  const RowTile tile = args.key_tiles[blockIdx.x];
  ClearPadding(args.attention.layout.head_dim, shared.keys);
  for (int64_t key = tile.begin; key < tile.begin + kTileKeys; key += kKeysOf<kDim>) {
    SumTile<Keys, kDim>(args, args.attention.rows[tile.row], key, shared);
    __syncthreads();
  }
}

template <typename Keys>
void LaunchDims(const PrefillScoresArgs& args, Stream& stream) {
  const dim3 grid(static_cast<unsigned>(args.num_key_tiles),
                  static_cast<unsigned>(args.attention.num_heads));
  WithTileDim(args.attention.layout.head_dim, [&](auto dim) {
    LaunchKernel(PrefillScoresKernel<Keys, decltype(dim)::value>, grid, kTileThreads, args, stream,
                 "prefill_scores launch");
  });
}

}  // namespace

void PrefillScoresAsync(const PrefillScoresArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.attention.layout.head_dim % kVectorElements == 0 &&
                 args.attention.layout.head_dim <= kMaxGpuHeadDim);
  if (args.num_key_tiles == 0) return;
  WithFormat(args.attention.kv_dtype, args.attention.layout.bits,
             [&](auto format) { LaunchDims<typename decltype(format)::Keys>(args, stream); });
}

}  // namespace spillway::kernels
