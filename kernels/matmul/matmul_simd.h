// The body of Matmul on plain vectors, compiled once per instruction set.
// Order of one element: for each block of 1024 k, lane l sums x[k] * w[k] over k = l (mod lanes) in
// rising order by FMA; a fixed tree adds the lanes; the block sums are added in order. Which rows
// and outputs share registers is free.
#pragma once

#include "kernels/convert/quantise_simd.h"
#include "kernels/matmul/matmul_finish.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// Accumulators are kRows x kOuts registers: 24 of 32, or 12 of 16, leave room for x and one weight.
constexpr int kRows = Simd::kLanes == 16 ? 4 : 3;
constexpr int kOuts = Simd::kLanes == 16 ? 6 : 4;
// Rows of x up to which widening weights in registers, again for every kRows rows, costs less than
// widening a panel once.
constexpr int64_t kDirectRows = 8 * kRows;
constexpr int64_t kDirectGroupRows = 2 * kRows;
static_assert(kRows > 3 || kDirectRows == kSimdUnpackedRows);
// Bytes and rows of x up to which a nearest cache of 32 KiB has room for the weights that the
// processor reads ahead.
constexpr int64_t kStreamXBytes = 12 << 10;
constexpr int64_t kStreamRows = 2;

struct BlockArgs {
  const float* x;
  int64_t x_stride;
  const void* weight;
  int64_t weight_stride;
  int64_t k_begin;  // of x and of a 16-bit weight
  int64_t k_end;
  const char* next;  // 16-bit weights to prefetch meanwhile: what follows, at the same stride
  float* sums;       // [row][kSimdTileOuts]
};

template <int kR, int kO, DType kType>
void MulBlock(const BlockArgs& args) {
  // Unrolled by force throughout: an index that is not a constant would put the accumulators in
  // memory.
  Simd::F acc[kR * kO];
#pragma GCC unroll 32
  for (int i = 0; i < kR * kO; ++i) acc[i] = Simd::Zero();
  int64_t k = args.k_begin;
  for (; k + Simd::kLanes <= args.k_end; k += Simd::kLanes) {
    Simd::F x[kR];
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) x[r] = Simd::Load(args.x + r * args.x_stride + k);
#pragma GCC unroll 8
    for (int o = 0; o < kO; ++o) {
      const Simd::F w = LoadAs<kType>(args.weight, o * args.weight_stride + k);
      if (kType != DType::kF32)
        __builtin_prefetch(args.next + (o * args.weight_stride + k) * 2, 0, 2);
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) acc[r * kO + o] = Simd::Fma(x[r], w, acc[r * kO + o]);
    }
  }
  if (k < args.k_end) {
    const int64_t n = args.k_end - k;
#pragma GCC unroll 8
    for (int o = 0; o < kO; ++o) {
      const Simd::F w = LoadPartAs<kType>(args.weight, o * args.weight_stride + k, n);
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) {
        acc[r * kO + o] =
            Simd::Fma(Simd::LoadPart(args.x + r * args.x_stride + k, n), w, acc[r * kO + o]);
      }
    }
  }
  AddSums<kR * kO, kO>(acc, args.sums);
}

template <int kO, DType kType>
void MulRows(const BlockArgs& args, int64_t num_rows) {
  switch (num_rows) {
    case 1:
      return MulBlock<1, kO, kType>(args);
    case 2:
      return MulBlock<2, kO, kType>(args);
    case 3:
      return MulBlock<3, kO, kType>(args);
    default:
      return MulBlock<kRows, kO, kType>(args);
  }
}

struct GroupArgs {
  const float* x;  // from the first group on
  int64_t x_stride;
  const std::byte* rows;  // of quantised weights, from the same group on
  int64_t row_bytes;
  int64_t count;     // of k
  const char* next;  // rows to prefetch meanwhile: what follows, as far apart
  float* sums;       // [row][kSimdTileOuts]
};

// Adds the last group, which stands for fewer than 64 weights.
template <int kR, int kO, DType kType>
void AddLastGroup(const GroupArgs& args, int64_t k_begin, Simd::F* acc) {
  const int64_t at = k_begin / kGroupWeights * GroupBytes(kType);
  for (int o = 0; o < kO; ++o) {
    float weights[kGroupWeights];
    DequantiseGroup<kType>(args.rows + o * args.row_bytes + at, weights);
    for (int64_t k = k_begin; k < args.count; k += Simd::kLanes) {
      const int64_t n = MinOf(Simd::kLanes, args.count - k);
      const Simd::F w = Simd::LoadPart(weights + (k - k_begin), n);
      for (int r = 0; r < kR; ++r) {
        const Simd::F x = Simd::LoadPart(args.x + r * args.x_stride + k, n);
        acc[r * kO + o] = Simd::Fma(x, w, acc[r * kO + o]);
      }
    }
  }
}

// MulBlock for quantised weights, which become fp32 in registers.
template <int kR, int kO, DType kType>
void MulGroups(const GroupArgs& args) {
  Simd::F acc[kR * kO];
#pragma GCC unroll 32
  for (int i = 0; i < kR * kO; ++i) acc[i] = Simd::Zero();
  const int64_t whole = args.count / kGroupWeights * kGroupWeights;
  for (int64_t k = 0; k < whole; k += kGroupWeights) {
    const int64_t at = k / kGroupWeights * GroupBytes(kType);
#pragma GCC unroll 8
    for (int o = 0; o < kO; ++o) {
      Simd::F w[kGroupVectors];
      LoadGroup<kType>(args.rows + o * args.row_bytes + at, w);
      __builtin_prefetch(args.next + o * args.row_bytes + at, 0, 2);
      if (GroupBytes(kType) > 64)
        __builtin_prefetch(args.next + o * args.row_bytes + at + 64, 0, 2);
#pragma GCC unroll 16
      for (int i = 0; i < kGroupVectors; ++i) {
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
          const Simd::F x = Simd::Load(args.x + r * args.x_stride + k + i * Simd::kLanes);
          acc[r * kO + o] = Simd::Fma(x, w[i], acc[r * kO + o]);
        }
      }
    }
  }
  if (whole < args.count) AddLastGroup<kR, kO, kType>(args, whole, acc);
  AddSums<kR * kO, kO>(acc, args.sums);
}

template <int kO, DType kType>
void MulGroupRows(const GroupArgs& args, int64_t num_rows) {
  switch (num_rows) {
    case 1:
      return MulGroups<1, kO, kType>(args);
    case 2:
      return MulGroups<2, kO, kType>(args);
    case 3:
      return MulGroups<3, kO, kType>(args);
    default:
      return MulGroups<kRows, kO, kType>(args);
  }
}

// A panel of weights as fp32, converted once for all rows: [kO][kSimdBlockK].
template <int kO, DType kType>
void WidenPanel(const BlockArgs& args, float* panel) {
  for (int o = 0; o < kO; ++o) {
    const int64_t row = o * args.weight_stride;
    float* to = panel + o * kSimdBlockK;
    int64_t k = args.k_begin;
    for (; k + Simd::kLanes <= args.k_end; k += Simd::kLanes) {
      __builtin_prefetch(args.next + (row + k) * 2);
      Simd::Store(to + (k - args.k_begin), LoadAs<kType>(args.weight, row + k));
    }
    if (k < args.k_end) {
      const int64_t n = args.k_end - k;
      Simd::StorePart(to + (k - args.k_begin), LoadPartAs<kType>(args.weight, row + k, n), n);
    }
  }
}

// WidenPanel for quantised rows, `row_bytes` apart; k begins with a group.
template <int kO, DType kType>
void DequantisePanel(const std::byte* rows, int64_t row_bytes, int64_t count, float* panel) {
  for (int o = 0; o < kO; ++o) {
    DequantiseRun<kType>(rows + o * row_bytes, panel + o * kSimdBlockK, count);
  }
}

// The tile's rows of x from k_begin on, for as much as a panel has of k.
struct PanelX {
  const float* x;
  int64_t stride;
};

inline PanelX PanelXOf(const MatmulTile& tile, int64_t k_begin) {
  if (tile.packed == nullptr)
    return {tile.x + tile.row_begin * tile.x_stride + k_begin, tile.x_stride};
  const int64_t row = k_begin / kSimdBlockK * tile.total_rows + tile.row_begin;
  const int64_t stride = SimdPackedRow(tile.in);
  return {reinterpret_cast<const float*>(tile.packed) + row * stride, stride};
}

// Outputs [out, out + kO) of the tile, k in [k_begin, k_end), all rows.
template <int kO, DType kType>
void MulPanel(const MatmulTile& tile, int64_t out, int64_t k_begin) {
  float* panel = reinterpret_cast<float*>(tile.scratch);
  float* sums = panel + kSimdMaxPanel * kSimdBlockK + out;
  const float* x = tile.x + tile.row_begin * tile.x_stride;
  const int64_t k_end = MinOf(tile.in, k_begin + kSimdBlockK);
  const WeightAt following = NextWeight(tile, out, kO, k_begin, StepOfK(tile, kRows));
  if constexpr (IsQuantised(kType)) {
    const int64_t row_bytes = RowBytes(kType, tile.in);
    const auto* matrix = static_cast<const std::byte*>(tile.piece->weight);
    const auto group_at = [&](int64_t of_out, int64_t k) {
      return matrix + of_out * row_bytes + k / kGroupWeights * GroupBytes(kType);
    };
    const std::byte* rows = group_at(tile.out_begin + out, k_begin);
    if (tile.num_rows <= kDirectGroupRows) {
      const char* next = reinterpret_cast<const char*>(group_at(following.out, following.k));
      for (int64_t row = 0; row < tile.num_rows; row += kRows) {
        MulGroupRows<kO, kType>({x + row * tile.x_stride + k_begin, tile.x_stride, rows, row_bytes,
                                 k_end - k_begin, next, sums + row * kSimdTileOuts},
                                MinOf(kRows, tile.num_rows - row));
      }
      return;
    }
    DequantisePanel<kO, kType>(rows, row_bytes, k_end - k_begin, panel);
  } else {
    const auto* matrix = static_cast<const uint16_t*>(tile.piece->weight);
    const uint16_t* weight = matrix + (tile.out_begin + out) * tile.in;
    const char* next =
        reinterpret_cast<const char*>(matrix + following.out * tile.in + following.k - k_begin);
    BlockArgs direct = {x, tile.x_stride, weight, tile.in, k_begin, k_end, next, sums};
    if (tile.num_rows <= kDirectRows) {
      for (int64_t row = 0; row < tile.num_rows; row += kRows) {
        MulRows<kO, kType>(direct, MinOf(kRows, tile.num_rows - row));
        direct.x += kRows * tile.x_stride;
        direct.sums += kRows * kSimdTileOuts;
      }
      return;
    }
    WidenPanel<kO, kType>(direct, panel);
  }
  const PanelX from = PanelXOf(tile, k_begin);
  for (int64_t row = 0; row < tile.num_rows; row += kRows) {
    const BlockArgs block = {
        from.x + row * from.stride, from.stride, panel, kSimdBlockK, 0, k_end - k_begin, nullptr,
        sums + row * kSimdTileOuts};
    MulRows<kO, DType::kF32>(block, MinOf(kRows, tile.num_rows - row));
  }
}

// Reads the tile's weights as one stream, which the processor itself fetches as fast as memory
// gives it. Several outputs side by side are no stream to it, and explicit prefetches help less.
template <int kR, DType kType>
void MulStream(const MatmulTile& tile, float* sums) {
  const auto* weight = static_cast<const uint16_t*>(tile.piece->weight) + tile.out_begin * tile.in;
  const float* x = tile.x + tile.row_begin * tile.x_stride;
  for (int64_t out = 0; out < tile.num_outs; ++out, weight += tile.in) {
    for (int64_t k_begin = 0; k_begin < tile.in; k_begin += kSimdBlockK) {
      const int64_t k_end = MinOf(tile.in, k_begin + kSimdBlockK);
      Simd::F acc[kR];
#pragma GCC unroll 2
      for (int r = 0; r < kR; ++r) acc[r] = Simd::Zero();
      int64_t k = k_begin;
#pragma GCC unroll 4
      for (; k + 2 * Simd::kLanes <= k_end; k += 2 * Simd::kLanes) {
        const Simd::Pair w = LoadPairAs<kType>(weight, k);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
          const float* x_at = x + r * tile.x_stride + k;
          acc[r] = Simd::Fma(Simd::Load(x_at), w.first, acc[r]);
          acc[r] = Simd::Fma(Simd::Load(x_at + Simd::kLanes), w.second, acc[r]);
        }
      }
      for (; k < k_end; k += Simd::kLanes) {
        const int64_t n = MinOf(Simd::kLanes, k_end - k);
        const Simd::F w = LoadPartAs<kType>(weight, k, n);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r)
          acc[r] = Simd::Fma(Simd::LoadPart(x + r * tile.x_stride + k, n), w, acc[r]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) sums[r * kSimdTileOuts + out] += Simd::Sum(acc[r]);
    }
  }
}

// True: MulStream computes the tile. With narrower registers its chain of FMAs would be slower than
// memory.
template <DType kType>
bool Streams(const MatmulTile& tile) {
  return Simd::kLanes == 16 && !IsQuantised(kType) && tile.num_rows <= kStreamRows &&
         tile.num_rows * tile.in * 4 <= kStreamXBytes;
}

template <DType kType>
void MulTile(const MatmulTile& tile) {
  float* sums = reinterpret_cast<float*>(tile.scratch) + kSimdMaxPanel * kSimdBlockK;
  __builtin_memset(sums, 0, static_cast<size_t>(tile.num_rows * kSimdTileOuts) * sizeof(float));
  if (!Streams<kType>(tile)) {
    ForEachPanel<kOuts>(tile, StepOfK(tile, kRows),
                        [&]<int kO>(int64_t out, int64_t k) { MulPanel<kO, kType>(tile, out, k); });
  } else if constexpr (!IsQuantised(kType)) {
    tile.num_rows == 1 ? MulStream<1, kType>(tile, sums) : MulStream<2, kType>(tile, sums);
  }
  FinishTile(tile, sums);
}

inline void MatmulTileSimd(const MatmulTile& tile) {
  const DType dtype = tile.piece->weight_dtype;
  if (dtype == DType::kF16) return MulTile<DType::kF16>(tile);
  if (dtype == DType::kBF16) return MulTile<DType::kBF16>(tile);
  WithQuantised(dtype, [&]<DType kType>() { MulTile<kType>(tile); });
}

}  // namespace
}  // namespace spillway::kernels
