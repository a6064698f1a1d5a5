// Matmul on the AMX tile unit, fp32-class: bf16 products, fp32 sums.
// fp16 w = hi + lo exactly (8 + 3 bits of bf16), fp32 x = x1 + x2 + x3 exactly (8 bits each, by truncation). Per step of
// 32 k an element takes hi*x1, lo*x1, lo*x2, hi*x2, hi*x3 in this order into one fp32 accumulator (lo*x3 lies below
// the last bit); bf16 weights take x1, x2, x3. That is 5 roundings at the sum's magnitude per 32 k against 32 of an FMA
// loop. The unit flushes denormals: parts of x under 2^-126 count as zero.
// The weights are the A tile (16 outputs x 32 k, as they lie in memory) and x the B tile (pairs of k x rows), so that
// no weight is transposed. x is split once per call (PackAmx), weights as they are met.
#include <immintrin.h>

#include "kernels/matmul_finish.h"
#include "kernels/matmul_isa.h"
#include "kernels/simd.h"

// The intrinsics of GCC 12 lack the "memory" clobber, so stores could sink below a tile load.
#define SPILLWAY_TILE_LOAD(tile, base, stride) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(base), "r"(static_cast<int64_t>(stride)) : "memory")
#define SPILLWAY_TILE_STORE(tile, base, stride) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(base), "r"(static_cast<int64_t>(stride)) : "memory")

namespace spillway::kernels {
namespace {

constexpr int64_t kStepK = 32;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kPanelBlocks = 4;  // blocks of 16 outputs whose tiles are in flight together
constexpr int64_t kPanelOuts = 64;
constexpr __mmask16 kAll = 0xFFFF;

// Weight parts per value.
constexpr int64_t Parts(DType dtype) { return dtype == DType::kF16 ? 2 : 1; }

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0-3 accumulate [16 outs][columns], 4 and 5 hold weights, 6 and 7 hold x.
inline void Configure(int64_t columns) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.column_bytes[tile] = tile == 4 || tile == 5 ? 64 : static_cast<uint16_t>(columns * 4);
  }
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

struct Halves {
  __m512i low;
  __m512i high;
};

// The top 16 bits of each float of f1 and f0, f0's in the low halves: bf16 pairs (k, k + 16) by truncation.
inline __m512i TopBits(__m512 f0, __m512 f1) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(f0), 16);
  return _mm512_ternarylogic_epi32(low, _mm512_castps_si512(f1), _mm512_set1_epi32(-65536), 0xF8);  // a | (b & c)
}

inline __m512 Truncate(__m512 f) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(f), _mm512_set1_epi32(-65536)));
}

// One line (32 k) of one output's weights -> its row in the tile, or two tiles. kTail: the last `n` < 32 of a row.
template <DType kType, bool kTail>
void SplitLine(const uint16_t* weight, int64_t n, std::byte* to) {
  if constexpr (kType == DType::kBF16) {
    const __mmask32 mask = kTail ? (1U << n) - 1U : ~0U;
    const __m512i line = kTail ? _mm512_maskz_loadu_epi16(mask, weight) : _mm512_loadu_si512(weight);
    _mm512_store_si512(to, line);
  } else {
    const __m512 f0 = kTail ? Simd::LoadHalfPart(weight, MinOf(n, 16)) : Simd::LoadHalf(weight);
    const __m512 f1 = kTail ? Simd::LoadHalfPart(weight + 16, n > 16 ? n - 16 : 0) : Simd::LoadHalf(weight + 16);
    _mm512_store_si512(to, TopBits(f0, f1));
    _mm512_store_si512(to + kTileBytes, TopBits(_mm512_sub_ps(f0, Truncate(f0)), _mm512_sub_ps(f1, Truncate(f1))));
  }
}

// In-register transposition of 16 x 16 words.
inline void Transpose(__m512i (&v)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xDD);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
  }
}

// Which k sit together in a pair must match the weights' tiles: (k, k + 16) for split fp16, (2k, 2k + 1) for bf16 as
// it lies in memory.
inline Halves LoadPairs(const float* x, int64_t n, DType weight_dtype) {
  const __m512 f0 = Simd::LoadPart(x, MinOf(n, 16));
  const __m512 f1 = Simd::LoadPart(x + 16, n > 16 ? n - 16 : 0);
  if (weight_dtype == DType::kF16) return {_mm512_castps_si512(f0), _mm512_castps_si512(f1)};
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {_mm512_castps_si512(_mm512_permutex2var_ps(f0, even, f1)),
          _mm512_castps_si512(_mm512_permutex2var_ps(f0, odd, f1))};
}

// [columns][16 pairs] -> [16 pairs][columns]
inline void StorePart(__m512i (&part)[16], int64_t columns, std::byte* to) {
  if (columns == 16) {
    Transpose(part);
    for (int pair = 0; pair < 16; ++pair) _mm512_store_si512(to + pair * 64, part[pair]);
    return;
  }
  uint32_t* words = reinterpret_cast<uint32_t*>(to);
  for (int64_t column = 0; column < columns; ++column) {
    alignas(64) uint32_t pairs[16];
    _mm512_store_si512(pairs, part[column]);
    for (int64_t pair = 0; pair < 16; ++pair) words[pair * columns + column] = pairs[pair];
  }
}

inline void PackStep(const AmxPackTask& task, int64_t step, std::byte* to) {
  const int64_t columns = AmxBlockRows(task.rows);
  const int64_t n = MinOf(kStepK, task.in - step * kStepK);
  __m512i parts[3][16];
  for (int64_t column = 0; column < 16; ++column) {
    const int64_t row = task.block * columns + column;
    Halves x = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (column < columns && row < task.rows) {
      x = LoadPairs(task.x + row * task.x_stride + step * kStepK, n, task.weight_dtype);
    }
    __m512 f0 = _mm512_castsi512_ps(x.low);
    __m512 f1 = _mm512_castsi512_ps(x.high);
    for (int part = 0; part < 3; ++part) {
      parts[part][column] = TopBits(f0, f1);
      f0 = _mm512_sub_ps(f0, Truncate(f0));
      f1 = _mm512_sub_ps(f1, Truncate(f1));
    }
  }
  for (int part = 0; part < 3; ++part) StorePart(parts[part], columns, to + part * columns * 64);
}

// y from a tile of sums [16 outs][columns] for outputs [out, out + 16) and rows [row, row + columns), cut to the tile.
inline void FinishTile(const MatmulTile& tile, int64_t out, int64_t row, const float* sums) {
  const int64_t columns = AmxBlockRows(tile.total_rows);
  const int64_t num_outs = MinOf(16, tile.out_begin + tile.num_outs - out);
  const int64_t num_rows = MinOf(columns, tile.row_begin + tile.num_rows - row);
  __m512i v[16];
  for (int64_t i = 0; i < 16; ++i) {
    v[i] = _mm512_castps_si512(Simd::LoadPart(sums + i * columns, columns));
  }
  Transpose(v);
  for (int64_t i = 0; i < num_rows; ++i) Finish(tile, row + i, out, _mm512_castsi512_ps(v[i]), num_outs);
}

// Where the 64 outputs of a panel lie; those past the end repeat the last one, and their results are dropped.
struct PanelRows {
  const uint16_t* weight[kPanelOuts];

  PanelRows(const MatmulTile& tile, int64_t first_out) {
    const uint16_t* base = static_cast<const uint16_t*>(tile.piece->weight);
    for (int64_t i = 0; i < kPanelOuts; ++i) {
      weight[i] = base + MinOf(first_out + i, tile.out_begin + tile.num_outs - 1) * tile.in;
    }
  }
};

// ---- Up to 16 rows: bound by memory. Tiles of the next step are split while the unit works on this one. ----

// How far ahead of the split weights are asked for, in lines of each of the 64 streams.
constexpr int64_t kPrefetchSteps = 8;

template <DType kType>
struct FewRows {
  const MatmulTile& tile;
  const PanelRows& rows;
  int64_t num_steps;
  int64_t columns;
  alignas(64) std::byte* ring;  // 2 x [block][part][16 outs][64 B]

  static constexpr int64_t kRingBytes = kPanelBlocks * Parts(kType) * kTileBytes;
  enum class Split { kNone, kFull, kTail };

  std::byte* Ring(int64_t step) const { return ring + (step & 1) * kRingBytes; }

  // Lines [kBegin, kEnd) of the 64 of `step`.
  template <Split kSplit, int kBegin, int kEnd>
  inline __attribute__((always_inline)) void SplitLines(int64_t step, int64_t ahead) const {
    if constexpr (kSplit != Split::kNone) {
      std::byte* to = Ring(step);
#pragma GCC unroll 8
      for (int line = kBegin; line < kEnd; ++line) {
        const uint16_t* from = rows.weight[line] + step * kStepK;
        _mm_prefetch(reinterpret_cast<const char*>(from) + ahead, _MM_HINT_T0);
        SplitLine<kType, kSplit == Split::kTail>(from, tile.in - step * kStepK,
                                                 to + (line / 16 * Parts(kType)) * kTileBytes + line % 16 * 64);
      }
    }
  }

  // Bytes from a line to the one wanted kPrefetchSteps later: in the same row, or in the panel after this.
  int64_t Ahead(int64_t step) const {
    const int64_t wanted = step + kPrefetchSteps;
    if (wanted < num_steps) return kPrefetchSteps * 64;
    return (kPanelOuts * tile.in + (wanted - num_steps - step) * kStepK) * 2;
  }

  template <Split kSplit>
  void Step(int64_t step) const;
  void Run(float* sums) const;
};

// One product of the step for the four blocks; a quarter of the split's share after each.
#define SPILLWAY_FEW_PRODUCT(product, num_products, weight_part, x_tile)                                     \
  SPILLWAY_TILE_LOAD(4, a + (weight_part)*kTileBytes, 64);                                                   \
  _tile_dpbf16ps(0, 4, x_tile);                                                                              \
  SplitLines<kSplit, (product)*64 / (num_products), ((product)*64 + 16) / (num_products)>(step + 1, ahead);  \
  SPILLWAY_TILE_LOAD(5, a + (Parts(kType) + (weight_part)) * kTileBytes, 64);                                \
  _tile_dpbf16ps(1, 5, x_tile);                                                                              \
  SplitLines<kSplit, ((product)*64 + 16) / (num_products), ((product)*64 + 32) / (num_products)>(step + 1, ahead); \
  SPILLWAY_TILE_LOAD(4, a + (2 * Parts(kType) + (weight_part)) * kTileBytes, 64);                            \
  _tile_dpbf16ps(2, 4, x_tile);                                                                              \
  SplitLines<kSplit, ((product)*64 + 32) / (num_products), ((product)*64 + 48) / (num_products)>(step + 1, ahead); \
  SPILLWAY_TILE_LOAD(5, a + (3 * Parts(kType) + (weight_part)) * kTileBytes, 64);                            \
  _tile_dpbf16ps(3, 5, x_tile);                                                                              \
  SplitLines<kSplit, ((product)*64 + 48) / (num_products), ((product)*64 + 64) / (num_products)>(step + 1, ahead)

template <DType kType>
template <typename FewRows<kType>::Split kSplit>
void FewRows<kType>::Step(int64_t step) const {
  const std::byte* a = Ring(step);
  const int64_t part_bytes = columns * 64;
  const std::byte* x = tile.packed + step * 3 * part_bytes;
  const int64_t ahead = Ahead(step + 1);
  SPILLWAY_TILE_LOAD(6, x, columns * 4);
  if constexpr (kType == DType::kF16) {
    SPILLWAY_FEW_PRODUCT(0, 5, 0, 6);
    SPILLWAY_TILE_LOAD(7, x + part_bytes, columns * 4);
    SPILLWAY_FEW_PRODUCT(1, 5, 1, 6);
    SPILLWAY_FEW_PRODUCT(2, 5, 1, 7);
    SPILLWAY_TILE_LOAD(6, x + 2 * part_bytes, columns * 4);
    SPILLWAY_FEW_PRODUCT(3, 5, 0, 7);
    SPILLWAY_FEW_PRODUCT(4, 5, 0, 6);
  } else {
    SPILLWAY_TILE_LOAD(7, x + part_bytes, columns * 4);
    SPILLWAY_FEW_PRODUCT(0, 3, 0, 6);
    SPILLWAY_TILE_LOAD(6, x + 2 * part_bytes, columns * 4);
    SPILLWAY_FEW_PRODUCT(1, 3, 0, 7);
    SPILLWAY_FEW_PRODUCT(2, 3, 0, 6);
  }
}

template <DType kType>
void FewRows<kType>::Run(float* sums) const {
  const bool tail = tile.in % kStepK != 0;
  const int64_t num_full = tile.in / kStepK;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (num_full > 0) {
    SplitLines<Split::kFull, 0, 64>(0, Ahead(0));
  } else {
    SplitLines<Split::kTail, 0, 64>(0, Ahead(0));
  }
  for (int64_t step = 0; step + 1 < num_full; ++step) Step<Split::kFull>(step);
  if (num_full > 0 && tail) Step<Split::kTail>(num_full - 1);
  Step<Split::kNone>(num_steps - 1);
  SPILLWAY_TILE_STORE(0, sums, columns * 4);
  SPILLWAY_TILE_STORE(1, sums + 16 * columns, columns * 4);
  SPILLWAY_TILE_STORE(2, sums + 32 * columns, columns * 4);
  SPILLWAY_TILE_STORE(3, sums + 48 * columns, columns * 4);
}

template <DType kType>
void MulFewRows(const MatmulTile& tile) {
  const int64_t columns = AmxBlockRows(tile.total_rows);
  float* sums = reinterpret_cast<float*>(tile.scratch);
  std::byte* ring = tile.scratch + kPanelOuts * 16 * 4;
  for (int64_t out = tile.out_begin; out < tile.out_begin + tile.num_outs; out += kPanelOuts) {
    const PanelRows rows(tile, out);
    FewRows<kType>{tile, rows, AmxStepsK(tile.in), columns, ring}.Run(sums);
    for (int64_t block = 0; block < kPanelBlocks; ++block) {
      if (out + block * 16 >= tile.out_begin + tile.num_outs) break;
      FinishTile(tile, out + block * 16, tile.row_begin, sums + block * 16 * columns);
    }
  }
}

// ---- More rows: bound by the unit. A panel of weights is split for a block of k, then meets all rows. ----

template <DType kType>
struct ManyRows {
  const MatmulTile& tile;
  int64_t num_row_blocks;  // of 16
  int64_t num_out_blocks;  // of 16, a multiple of kPanelBlocks
  std::byte* split;        // [out block][step of the block of k][part][16 outs][64 B]
  float* sums;             // [out block][row block][16 outs][16 rows]

  static constexpr int64_t kSteps = kAmxBlockK / kStepK;
  static constexpr int64_t kStepBytes = Parts(kType) * kTileBytes;

  const std::byte* X(int64_t row_block, int64_t step) const {
    const int64_t block = tile.row_begin / 16 + row_block;
    return tile.packed + (block * AmxStepsK(tile.in) + step) * 3 * kTileBytes;
  }
  float* Sums(int64_t out_block, int64_t row_block) const {
    return sums + (out_block * num_row_blocks + row_block) * 256;
  }
  void SplitBlock(int64_t step_begin, int64_t step_end) const;
  void Mul2x2(int64_t out_block, int64_t row_block, int64_t step_begin, int64_t step_end) const;
  void Mul4x1(int64_t out_block, int64_t row_block, int64_t step_begin, int64_t step_end) const;
  void Run() const;
};

template <DType kType>
void ManyRows<kType>::SplitBlock(int64_t step_begin, int64_t step_end) const {
  for (int64_t panel = 0; panel < num_out_blocks; panel += kPanelBlocks) {
    const PanelRows rows(tile, tile.out_begin + panel * 16);
    for (int64_t line = 0; line < kPanelOuts; ++line) {
      std::byte* to = split + (panel + line / 16) * kSteps * kStepBytes + line % 16 * 64;
      for (int64_t step = step_begin; step < step_end; ++step, to += kStepBytes) {
        const uint16_t* from = rows.weight[line] + step * kStepK;
        const int64_t n = tile.in - step * kStepK;
        n >= kStepK ? SplitLine<kType, false>(from, n, to) : SplitLine<kType, true>(from, n, to);
      }
    }
  }
}

#define SPILLWAY_PRODUCT_2X2    \
  _tile_dpbf16ps(0, 4, 6);      \
  _tile_dpbf16ps(1, 4, 7);      \
  _tile_dpbf16ps(2, 5, 6);      \
  _tile_dpbf16ps(3, 5, 7)

// Two blocks of outputs by two of rows: tiles 0 1 / 2 3.
template <DType kType>
void ManyRows<kType>::Mul2x2(int64_t out_block, int64_t row_block, int64_t step_begin, int64_t step_end) const {
  float* s0 = Sums(out_block, row_block);
  float* s1 = Sums(out_block + 1, row_block);
  SPILLWAY_TILE_LOAD(0, s0, 64);
  SPILLWAY_TILE_LOAD(1, s0 + 256, 64);
  SPILLWAY_TILE_LOAD(2, s1, 64);
  SPILLWAY_TILE_LOAD(3, s1 + 256, 64);
  const std::byte* a0 = split + out_block * kSteps * kStepBytes;
  const std::byte* a1 = a0 + kSteps * kStepBytes;
  const std::byte* x0 = X(row_block, step_begin);
  const std::byte* x1 = X(row_block + 1, step_begin);
  for (int64_t step = step_begin; step < step_end; ++step) {
    SPILLWAY_TILE_LOAD(4, a0, 64);
    SPILLWAY_TILE_LOAD(6, x0, 64);
    SPILLWAY_TILE_LOAD(7, x1, 64);
    SPILLWAY_TILE_LOAD(5, a1, 64);
    SPILLWAY_PRODUCT_2X2;
    if constexpr (kType == DType::kF16) {
      SPILLWAY_TILE_LOAD(4, a0 + kTileBytes, 64);
      SPILLWAY_TILE_LOAD(5, a1 + kTileBytes, 64);
      SPILLWAY_PRODUCT_2X2;
    }
    SPILLWAY_TILE_LOAD(6, x0 + kTileBytes, 64);
    SPILLWAY_TILE_LOAD(7, x1 + kTileBytes, 64);
    SPILLWAY_PRODUCT_2X2;
    if constexpr (kType == DType::kF16) {
      SPILLWAY_TILE_LOAD(4, a0, 64);
      SPILLWAY_TILE_LOAD(5, a1, 64);
      SPILLWAY_PRODUCT_2X2;
    }
    SPILLWAY_TILE_LOAD(6, x0 + 2 * kTileBytes, 64);
    SPILLWAY_TILE_LOAD(7, x1 + 2 * kTileBytes, 64);
    SPILLWAY_PRODUCT_2X2;
    a0 += kStepBytes;
    a1 += kStepBytes;
    x0 += 3 * kTileBytes;
    x1 += 3 * kTileBytes;
  }
  SPILLWAY_TILE_STORE(0, s0, 64);
  SPILLWAY_TILE_STORE(1, s0 + 256, 64);
  SPILLWAY_TILE_STORE(2, s1, 64);
  SPILLWAY_TILE_STORE(3, s1 + 256, 64);
}

#define SPILLWAY_PRODUCT_4X1(weight_part, x_tile)                                  \
  SPILLWAY_TILE_LOAD(4, a + (weight_part)*kTileBytes, 64);                         \
  _tile_dpbf16ps(0, 4, x_tile);                                                    \
  SPILLWAY_TILE_LOAD(5, a + block_bytes + (weight_part)*kTileBytes, 64);           \
  _tile_dpbf16ps(1, 5, x_tile);                                                    \
  SPILLWAY_TILE_LOAD(4, a + 2 * block_bytes + (weight_part)*kTileBytes, 64);       \
  _tile_dpbf16ps(2, 4, x_tile);                                                    \
  SPILLWAY_TILE_LOAD(5, a + 3 * block_bytes + (weight_part)*kTileBytes, 64);       \
  _tile_dpbf16ps(3, 5, x_tile)

// Four blocks of outputs by one of rows: the odd block at the end.
template <DType kType>
void ManyRows<kType>::Mul4x1(int64_t out_block, int64_t row_block, int64_t step_begin, int64_t step_end) const {
  constexpr int64_t block_bytes = kSteps * kStepBytes;
  const int64_t sums_stride = num_row_blocks * 256;
  float* s = Sums(out_block, row_block);
  SPILLWAY_TILE_LOAD(0, s, 64);
  SPILLWAY_TILE_LOAD(1, s + sums_stride, 64);
  SPILLWAY_TILE_LOAD(2, s + 2 * sums_stride, 64);
  SPILLWAY_TILE_LOAD(3, s + 3 * sums_stride, 64);
  const std::byte* a = split + out_block * block_bytes;
  const std::byte* x = X(row_block, step_begin);
  for (int64_t step = step_begin; step < step_end; ++step) {
    SPILLWAY_TILE_LOAD(6, x, 64);
    SPILLWAY_TILE_LOAD(7, x + kTileBytes, 64);
    SPILLWAY_PRODUCT_4X1(0, 6);
    if constexpr (kType == DType::kF16) {
      SPILLWAY_PRODUCT_4X1(1, 6);
      SPILLWAY_PRODUCT_4X1(1, 7);
    }
    SPILLWAY_PRODUCT_4X1(0, 7);
    SPILLWAY_TILE_LOAD(6, x + 2 * kTileBytes, 64);
    SPILLWAY_PRODUCT_4X1(0, 6);
    a += kStepBytes;
    x += 3 * kTileBytes;
  }
  SPILLWAY_TILE_STORE(0, s, 64);
  SPILLWAY_TILE_STORE(1, s + sums_stride, 64);
  SPILLWAY_TILE_STORE(2, s + 2 * sums_stride, 64);
  SPILLWAY_TILE_STORE(3, s + 3 * sums_stride, 64);
}

template <DType kType>
void ManyRows<kType>::Run() const {
  const int64_t num_steps = AmxStepsK(tile.in);
  __builtin_memset(sums, 0, static_cast<size_t>(num_out_blocks * num_row_blocks) * kTileBytes);
  for (int64_t begin = 0; begin < num_steps; begin += kSteps) {
    const int64_t end = MinOf(num_steps, begin + kSteps);
    SplitBlock(begin, end);
    int64_t row_block = 0;
    for (; row_block + 2 <= num_row_blocks; row_block += 2) {
      for (int64_t out_block = 0; out_block < num_out_blocks; out_block += 2) Mul2x2(out_block, row_block, begin, end);
    }
    if (row_block == num_row_blocks) continue;
    for (int64_t out_block = 0; out_block < num_out_blocks; out_block += 4) Mul4x1(out_block, row_block, begin, end);
  }
  for (int64_t out_block = 0; out_block < num_out_blocks && out_block * 16 < tile.num_outs; ++out_block) {
    for (int64_t row_block = 0; row_block < num_row_blocks; ++row_block) {
      FinishTile(tile, tile.out_begin + out_block * 16, tile.row_begin + row_block * 16, Sums(out_block, row_block));
    }
  }
}

template <DType kType>
void MulTile(const MatmulTile& tile) {
  if (tile.total_rows <= 16) return MulFewRows<kType>(tile);
  const int64_t num_out_blocks = (tile.num_outs + kPanelOuts - 1) / kPanelOuts * kPanelBlocks;
  float* sums = reinterpret_cast<float*>(tile.scratch + kAmxTileOuts * kAmxBlockK * 4);
  ManyRows<kType>{tile, (tile.num_rows + 15) / 16, num_out_blocks, tile.scratch, sums}.Run();
}

}  // namespace

void PackAmx(const AmxPackTask& task) {
  std::byte* to = task.packed + (task.block * AmxStepsK(task.in) + task.step_begin) * AmxStepBytes(task.rows);
  for (int64_t step = task.step_begin; step < task.step_end; ++step, to += AmxStepBytes(task.rows)) {
    PackStep(task, step, to);
  }
}

void MatmulTileAmx(const MatmulTile& tile) {
  Configure(AmxBlockRows(tile.total_rows));
  tile.piece->weight_dtype == DType::kF16 ? MulTile<DType::kF16>(tile) : MulTile<DType::kBF16>(tile);
  _tile_release();
}

}  // namespace spillway::kernels
