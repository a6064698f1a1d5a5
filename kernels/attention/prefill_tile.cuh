// Tiles of prefill attention: a block of 4 warps, 16 queries each, against 64 keys in shared
// memory. Products are mma.m16n8k16 of 16-bit factors with fp32 sums. mma_index.h says which of
// their elements a lane holds.
#pragma once

#include "kernels/attention/prefill_attention.h"
#include "kernels/kv/kv_vectors.cuh"
#include "kernels/simd/launch.cuh"
#include "kernels/simd/mma.cuh"
#include "kernels/simd/mma_index.h"

namespace spillway::kernels {

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = kTileWarps * kWarp;
inline constexpr int kWarpQueries = kTileQueries / kTileWarps;  // 16, an mma's rows
static_assert(kWarpQueries == 16);

// Calls `launch` with the width of tiles, as a type, for heads of head_dim elements. Requires:
// head_dim <= 256.
template <typename Launch>
void WithTileDim(int64_t head_dim, const Launch& launch) {
  if (head_dim <= 32) return launch(std::integral_constant<int, 32>());
  if (head_dim <= 64) return launch(std::integral_constant<int, 64>());
  if (head_dim <= 80) return launch(std::integral_constant<int, 80>());
  if (head_dim <= 128) return launch(std::integral_constant<int, 128>());
  launch(std::integral_constant<int, 256>());
}

// Keys of a tile in shared memory; two tiles of wide heads would not fit otherwise.
template <int kDim>
inline constexpr int kKeysOf = kDim > 128 ? 32 : static_cast<int>(kTileKeys);

// Accumulators of 8 keys.
template <int kDim>
inline constexpr int kKeyColumns = kKeysOf<kDim> / 8;

// First slot, of a tile's first key, that a query at `position` or a later one sees.
template <int kDim>
__device__ int64_t FirstTile(int64_t position, int64_t window) {
  if (window == 0 || position < window) return 0;
  return (position + 1 - window) / kKeysOf<kDim> * kKeysOf<kDim>;
}

// Whether the query at `position` sees a slot.
__device__ inline bool Sees(int64_t position, int64_t slot, int64_t window) {
  return slot <= position && (window == 0 || slot > position - window);
}

// 16 bytes of padding put 8 neighbouring rows into different banks, so that ldmatrix never waits.
template <typename T, int kDim>
struct SharedTile {
  static constexpr int kStride = kDim + 8;
  T values[kKeysOf<kDim> * kStride];
};

// Source of a block's keys and values: one KV head of one row.
struct TileSource {
  RowSlots row;
  KvLayout layout;
  int64_t kv_head;
  int64_t num_keys;
  KeyMeans means;
};
static_assert(kPrefixStep % kTileKeys == 0);  // no tile has keys in two places

// Writes a vector's values, rounded, to a tile's row. Part: a format's keys or its values. `row` is
// 16-byte aligned.
template <typename Part>
__device__ void StoreRounded(const float (&values)[kVectorElements], int64_t vector,
                             int64_t head_dim, typename Part::Factor* row) {
  const bool in_order = IsInOrder<Part::kBits>(vector, head_dim);
#pragma unroll
  for (int pair = 0; pair < kVectorElements / 2; ++pair) {
    const float low = in_order ? values[2 * pair] : values[pair];
    const float high = in_order ? values[2 * pair + 1] : values[pair + kVectorElements / 2];
    const int64_t d = VectorElement<Part::kBits>(vector, in_order ? 2 * pair : pair, head_dim);
    *reinterpret_cast<uint32_t*>(row + d) = NarrowPair<typename Part::Factor>(low, high);
  }
}

// Vector number `at` of a tile; one thread loads it.
struct TileVector {
  int key;  // of the tile
  VectorPlace place;
  bool is_there;  // false: past the last key

  __device__ TileVector(const TileSource& source, int64_t first, int at) {
    const int vectors = static_cast<int>(source.layout.head_dim) / kVectorElements;
    key = at / vectors;
    is_there = first + key < source.num_keys;
    place = {source.kv_head, is_there ? first + key : first, at % vectors};
  }
};

// Loads a tile of codes. All reads are issued before the first result is used; values are rounded
// to the type of the factors.
template <typename Part, int kDim>
__device__ void LoadCodes(const TileSource& source, int64_t first,
                          SharedTile<typename Part::Factor, kDim>& tile) {
  constexpr int kMost = kKeysOf<kDim> * kDim / kVectorElements / kTileThreads;
  const int64_t head_dim = source.layout.head_dim;
  const std::byte* base = source.row.Base<typename Part::Form>(source.layout, first);
  const int count = kKeysOf<kDim> * static_cast<int>(head_dim) / kVectorElements;
  typename Part::Vector codes[kMost];
#pragma unroll
  for (int n = 0; n < kMost; ++n) {
    const int at = n * kTileThreads + static_cast<int>(threadIdx.x);
    if (at >= count) break;
    const TileVector vector(source, first, at);
    if (vector.is_there) {
      codes[n] = Part::template Load<ReadOnly>(base, source.layout, vector.place);
    }
  }
#pragma unroll
  for (int n = 0; n < kMost; ++n) {
    const int at = n * kTileThreads + static_cast<int>(threadIdx.x);
    if (at >= count) break;
    const TileVector vector(source, first, at);
    float values[kVectorElements];
    Part::Widen(codes[n], values);
    AddMean<Part>(source.means, vector.place, vector.place.slot, head_dim, values);
    StoreRounded<Part>(values, vector.place.vector, head_dim,
                       &tile.values[vector.key * SharedTile<typename Part::Factor, kDim>::kStride]);
  }
}

// Begins to copy keys (or values) [first, first + kKeysOf); past num_keys they are zero.
template <typename Part, int kDim>
__device__ void LoadTile(const TileSource& source, int64_t first,
                         SharedTile<typename Part::Factor, kDim>& tile) {
  if constexpr (Part::kBits < 16) {
    LoadCodes<Part, kDim>(source, first, tile);
  } else {
    constexpr int kStride = SharedTile<typename Part::Factor, kDim>::kStride;
    const std::byte* base = source.row.Base<typename Part::Form>(source.layout, first);
    const int count = kKeysOf<kDim> * static_cast<int>(source.layout.head_dim) / kVectorElements;
    for (int at = threadIdx.x; at < count; at += kTileThreads) {
      const TileVector vector(source, first, at);
      CopyAsync16(&tile.values[vector.key * kStride + vector.place.vector * kVectorElements],
                  Part::Address(base, source.layout, vector.place), vector.is_there);
    }
  }
}

// Turns a tile's keys to their slots' places. Requires: all of the tile is there, and is not read
// before the block's next barrier.
template <typename T, int kDim>
__device__ void TurnTile(const KeyTurns& turns, int64_t first, int64_t num_keys,
                         SharedTile<T, kDim>& tile) {
  const int pairs = static_cast<int>(turns.dims / 2);
  for (int at = threadIdx.x; at < kKeysOf<kDim> * pairs; at += kTileThreads) {
    const int key = at / pairs;
    const int pair = at % pairs;
    const int64_t slot = first + key;
    if (slot >= num_keys) break;
    T* row = &tile.values[key * SharedTile<T, kDim>::kStride];
    T& first_of_pair = row[turns.First(pair)];
    T& second_of_pair = row[turns.Second(pair)];
    const float cosine = turns.Cosines(slot)[pair];
    const float sine = turns.Sines(slot)[pair];
    const float a = Widen(first_of_pair);
    const float b = Widen(second_of_pair);
    first_of_pair = Narrow<T>(a * cosine - b * sine);
    second_of_pair = Narrow<T>(b * cosine + a * sine);
  }
}

// Columns past head_dim stay zero: what lay in shared memory may be a NaN.
template <typename T, int kDim>
__device__ void ClearPadding(int64_t head_dim, SharedTile<T, kDim>& tile) {
  const int padding = kDim - static_cast<int>(head_dim);
  for (int at = threadIdx.x; at < kKeysOf<kDim> * padding; at += kTileThreads) {
    const int column = static_cast<int>(head_dim) + at % padding;
    tile.values[at / padding * SharedTile<T, kDim>::kStride + column] = Narrow<T>(0.0F);
  }
}

// A warp's 16 queries of one head, scaled and rounded.
template <typename T, int kDim>
struct QueryFragments {
  Fragment4 steps[kDim / 16];

  // `first`: the warp's first query of the row; those past num_new are zero.
  __device__ void Load(const PrefillAttentionArgs& args, const AttentionRow& row, int64_t head,
                       int64_t first) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const TilePlace place = FactorPlace(lane, word);
        const int64_t query = first + place.row;
        const int64_t d = step * 16 + place.col;
        float pair[2] = {0.0F, 0.0F};
        if (query < row.num_new && d < args.layout.head_dim) {
          const float* from =
              args.q + (row.token_offset + query) * args.q_stride + head * args.layout.head_dim + d;
          pair[0] = from[0] * args.scale;
          pair[1] = from[1] * args.scale;
        }
        steps[step].words[word] = NarrowPair<T>(pair[0], pair[1]);
      }
    }
  }
};

// scores[c][i] of 16 queries and a tile's keys: SumPlace(lane, i) in columns 8 c to 8 c + 7.
template <typename T, int kDim>
__device__ void ScoreTile(const QueryFragments<T, kDim>& q, const SharedTile<T, kDim>& keys,
                          float (&scores)[kKeyColumns<kDim>][4]) {
  const TilePlace from = KeyAddress(threadIdx.x % kWarp);
#pragma unroll
  for (int column = 0; column < kKeyColumns<kDim>; column += 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[column][i] = scores[column + 1][i] = 0.0F;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const Fragment4 b =
          LoadMatrices<false>(&keys.values[(column * 8 + from.row) * SharedTile<T, kDim>::kStride +
                                           step * 16 + from.col]);
      MultiplyAdd<T>(scores[column], q.steps[step], b.words[0], b.words[1]);
      MultiplyAdd<T>(scores[column + 1], q.steps[step], b.words[2], b.words[3]);
    }
  }
}

}  // namespace spillway::kernels
