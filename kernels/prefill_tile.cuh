// Tiles of prefill attention: a block of 4 warps, 16 queries each, against 64 keys in shared
// memory. Products are mma.m16n8k16 of 16-bit factors with fp32 sums. mma_index.h says which of
// their elements a lane holds.
#pragma once

#include "kernels/kv_vectors.cuh"
#include "kernels/launch.cuh"
#include "kernels/mma_index.h"
#include "kernels/prefill_attention.h"

namespace spillway::kernels {

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = kTileWarps * kWarp;
inline constexpr int kWarpQueries = kTileQueries / kTileWarps;  // 16, an mma's rows
inline constexpr int kKeyColumns = kTileKeys / 8;               // accumulators of 8 keys
static_assert(kWarpQueries == 16);

// 16 bytes of padding put 8 neighbouring rows into different banks, so that ldmatrix never waits.
template <typename T, int kDim>
struct SharedTile {
  static constexpr int kStride = kDim + 8;
  T values[kTileKeys * kStride];
};

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A 16-byte copy to shared memory that this thread does not wait for; zeros where not `is_there`.
__device__ inline void CopyAsync16(void* to, const void* from, bool is_there) {
  const int bytes = is_there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(bytes)
               : "memory");
}

__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's committed groups are under way.
template <int kPending>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

struct Fragment4 {
  uint32_t words[4];
};

template <bool kTransposed>
__device__ Fragment4 LoadMatrices(const void* row) {
  Fragment4 f;
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f.words[0]), "=r"(f.words[1]), "=r"(f.words[2]), "=r"(f.words[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f.words[0]), "=r"(f.words[1]), "=r"(f.words[2]), "=r"(f.words[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
  return f;
}

template <typename T>
__device__ void MultiplyAdd(float (&c)[4], const Fragment4& a, uint32_t b0, uint32_t b1);

template <>
__device__ inline void MultiplyAdd<__half>(float (&c)[4], const Fragment4& a, uint32_t b0,
                                           uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void MultiplyAdd<__nv_bfloat16>(float (&c)[4], const Fragment4& a, uint32_t b0,
                                                  uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}

// Where a block's keys are: one head of one row.
struct TileSource {
  const std::byte* kv;
  KvLayout layout;
  int64_t kv_head;
  int64_t num_keys;
};

// Begins to copy keys (or values) [first, first + kTileKeys); past num_keys they are zero.
template <typename T, int kDim>
__device__ void LoadTile(const TileSource& source, KvPart part, int64_t first,
                         SharedTile<T, kDim>& tile) {
  const int vectors = static_cast<int>(source.layout.head_dim / kVectorElements);
  for (int at = threadIdx.x; at < kTileKeys * vectors; at += kTileThreads) {
    const int key = at / vectors;
    const int vector = at % vectors;
    const bool is_there = first + key < source.num_keys;
    const uint4* from = KvVector(source.kv, source.layout, part,
                                 {source.kv_head, is_there ? first + key : 0, vector});
    CopyAsync16(&tile.values[key * SharedTile<T, kDim>::kStride + vector * kVectorElements], from,
                is_there);
  }
}

// Columns past head_dim stay zero: what lay in shared memory may be a NaN.
template <typename T, int kDim>
__device__ void ClearPadding(int64_t head_dim, SharedTile<T, kDim>& tile) {
  const int padding = kDim - static_cast<int>(head_dim);
  for (int at = threadIdx.x; at < kTileKeys * padding; at += kTileThreads) {
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

// scores[c][i] of 16 queries and 64 keys: SumPlace(lane, i) in columns 8 c to 8 c + 7.
template <typename T, int kDim>
__device__ void ScoreTile(const QueryFragments<T, kDim>& q, const SharedTile<T, kDim>& keys,
                          float (&scores)[kKeyColumns][4]) {
  const TilePlace from = KeyAddress(threadIdx.x % kWarp);
#pragma unroll
  for (int column = 0; column < kKeyColumns; column += 2) {
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
