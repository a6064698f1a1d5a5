// Matmul on the AMX tile unit, fp32-class: bf16 products, fp32 sums.
// fp16 w = hi + lo exactly (8 + 3 bits of bf16), fp32 x = x1 + x2 + x3 exactly (8 bits each, by
// truncation). Per step of 32 k an element takes hi*x1, lo*x1, lo*x2, hi*x2, hi*x3 in this order
// into one fp32 accumulator (lo*x3 lies below the last bit); bf16 weights take x1, x2, x3. Sums of
// 512 k are added in order. This fixes every bit, whatever the number of rows. The unit flushes
// denormals: parts of x under 2^-126 count as zero. The weights are the A tile (16 outputs x 32 k,
// as they lie in memory) and x the B tile (pairs of k x rows), so that no weight is transposed. x
// is split once per call (PackAmx), weights as they are met.
#include <immintrin.h>

#include "kernels/matmul_finish.h"
#include "kernels/matmul_isa.h"
#include "kernels/simd.h"

// The intrinsics of GCC 12 lack the "memory" clobber, so stores could sink below a tile load.
#define SPILLWAY_TILE_LOAD(tile, base, stride)                                                   \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(base), "r"(static_cast<int64_t>(stride)) \
               : "memory")
#define SPILLWAY_TILE_STORE(tile, base, stride)                    \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(base), \
               "r"(static_cast<int64_t>(stride))                   \
               : "memory")

namespace spillway::kernels {
namespace {

constexpr int64_t kStepK = 32;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kPanelOuts = 64;  // at most

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

// The top 16 bits of each float of f1 and f0, f0's in the low halves: bf16 pairs (k, k + 16) by
// truncation.
inline __m512i TopBits(__m512 f0, __m512 f1) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(f0), 16);
  return _mm512_ternarylogic_epi32(low, _mm512_castps_si512(f1), _mm512_set1_epi32(-65536),
                                   0xF8);  // a | (b & c)
}

inline __m512 Truncate(__m512 f) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(f), _mm512_set1_epi32(-65536)));
}

// One line (32 k) of one output's weights -> its row in the tile, or two tiles. kTail: the last `n`
// < 32 of a row.
template <DType kType, bool kTail>
void SplitLine(const uint16_t* weight, int64_t n, std::byte* to) {
  if constexpr (kType == DType::kBF16) {
    const __mmask32 mask = kTail ? (1U << n) - 1U : ~0U;
    const __m512i line =
        kTail ? _mm512_maskz_loadu_epi16(mask, weight) : _mm512_loadu_si512(weight);
    _mm512_store_si512(to, line);
  } else {
    const __m512 f0 = kTail ? Simd::LoadHalfPart(weight, MinOf(n, 16)) : Simd::LoadHalf(weight);
    const __m512 f1 =
        kTail ? Simd::LoadHalfPart(weight + 16, n > 16 ? n - 16 : 0) : Simd::LoadHalf(weight + 16);
    _mm512_store_si512(to, TopBits(f0, f1));
    _mm512_store_si512(to + kTileBytes,
                       TopBits(_mm512_sub_ps(f0, Truncate(f0)), _mm512_sub_ps(f1, Truncate(f1))));
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

// Which k sit together in a pair must match the weights' tiles: (k, k + 16) for split fp16, (2k, 2k
// + 1) for bf16 as it lies in memory.
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

// y from a tile of sums [16 outs][columns] for outputs [out, out + 16) and rows [row, row +
// columns), cut to the tile.
inline void FinishTile(const MatmulTile& tile, int64_t out, int64_t row, const float* sums) {
  const int64_t columns = AmxBlockRows(tile.total_rows);
  const int64_t num_outs = MinOf(16, tile.out_begin + tile.num_outs - out);
  const int64_t num_rows = MinOf(columns, tile.row_begin + tile.num_rows - row);
  __m512i v[16];
  for (int64_t i = 0; i < 16; ++i) {
    v[i] = _mm512_castps_si512(Simd::LoadPart(sums + i * columns, columns));
  }
  Transpose(v);
  for (int64_t i = 0; i < num_rows; ++i)
    Finish(tile, row + i, out, _mm512_castsi512_ps(v[i]), num_outs);
}

// Where the 64 outputs of a panel lie; those past the end repeat the last one, and their results
// are dropped.
struct PanelRows {
  const uint16_t* weight[kPanelOuts];

  PanelRows(const MatmulTile& tile, int64_t first_out) {
    const uint16_t* base = static_cast<const uint16_t*>(tile.piece->weight);
    for (int64_t i = 0; i < kPanelOuts; ++i) {
      weight[i] = base + MinOf(first_out + i, tile.out_begin + tile.num_outs - 1) * tile.in;
    }
  }
};

// Weights are split as they stream by, while the unit works on the step before: four blocks of 16
// outputs by one of rows, or two by two. More rows split the same weights again, which costs less
// than writing and reading a split panel (measured: 390 GFLOP/s a core against 330), and k is cut
// into blocks whose x stays in L2 for all outputs of a tile.

// Tiles are emptied into fp32 sums after this many steps (512 k), counted from 0. The unit rounds
// after every pair of k, so one long sum in a tile errs twice as much as the plainest FMA loop;
// short ones err less than it.
constexpr int64_t kSumSteps = 16;

// Weights are asked for in groups of consecutive lines of one row, this many groups ahead of the
// split: line by line, 64 rows apart in memory, every request would open another DRAM page.
constexpr int64_t kGroupLines = 4;
constexpr int64_t kGroupsAhead = 1;

template <DType kType, int kOutBlocks>
struct Stream {
  const MatmulTile& tile;
  const PanelRows& rows;
  int64_t columns;
  int64_t row_block;  // the first, of 16 rows of the call
  int64_t step_begin;
  int64_t step_end;
  int64_t jump;     // elements from (this panel, step_end) to where this worker likely reads next
  std::byte* ring;  // 2 x [block][part][16 outs][64 B]
  float* part;      // the sums of one run of kSumSteps

  static constexpr int64_t kRowBlocks = 4 / kOutBlocks;
  static constexpr int kLines = 16 * kOutBlocks;
  static constexpr int64_t kRingBytes = kOutBlocks * Parts(kType) * kTileBytes;
  enum class Split { kNone, kFull, kTail };

  std::byte* Ring(int64_t step) const { return ring + (step & 1) * kRingBytes; }
  // x of a step; past the last block of rows the last is repeated, and what comes of it is dropped.
  const std::byte* X(int64_t block, int64_t step) const {
    const int64_t last = AmxNumBlocks(tile.total_rows) - 1;
    return tile.packed +
           (MinOf(row_block + block, last) * AmxStepsK(tile.in) + step) * 3 * columns * 64;
  }

  // Lines [kBegin, kEnd) of `step`.
  template <Split kSplit, int kBegin, int kEnd>
  inline __attribute__((always_inline)) void SplitLines(int64_t step, int64_t ahead) const {
    if constexpr (kSplit != Split::kNone) {
      std::byte* to = Ring(step);
#pragma GCC unroll 8
      for (int line = kBegin; line < kEnd; ++line) {
        const uint16_t* coming = rows.weight[line / kGroupLines * kGroupLines + step % kGroupLines];
        _mm_prefetch(reinterpret_cast<const char*>(coming) + ahead + line % kGroupLines * 64,
                     _MM_HINT_T0);
        const uint16_t* from = rows.weight[line] + step * kStepK;
        SplitLine<kType, kSplit == Split::kTail>(
            from, tile.in - step * kStepK,
            to + (line / 16 * Parts(kType)) * kTileBytes + line % 16 * 64);
      }
    }
  }

  // Bytes from the start of a row to the group asked for while `step` is split: in the same row or
  // behind the jump.
  int64_t Ahead(int64_t step) const {
    const int64_t coming = (step / kGroupLines + kGroupsAhead) * kGroupLines;
    return coming * 64 + (coming < step_end ? 0 : jump * 2);
  }

  template <Split kSplit>
  void Step(int64_t step) const;
  void AddTiles(float* sums, bool first) const;
  void Run(float* sums) const;
};

// One product of the step for the four pairs of blocks; a quarter of its share of the split after
// each.
#define SPILLWAY_SPLIT_SHARE(product, num_products, quarter)                    \
  SplitLines<kSplit, ((product)*4 + (quarter)) * kLines / (4 * (num_products)), \
             ((product)*4 + (quarter) + 1) * kLines / (4 * (num_products))>(step + 1, ahead)

#define SPILLWAY_STREAM_4X1(product, num_products, weight_part, x_tile)           \
  SPILLWAY_TILE_LOAD(4, a + (weight_part)*kTileBytes, 64);                        \
  _tile_dpbf16ps(0, 4, x_tile);                                                   \
  SPILLWAY_SPLIT_SHARE(product, num_products, 0);                                 \
  SPILLWAY_TILE_LOAD(5, a + (Parts(kType) + (weight_part)) * kTileBytes, 64);     \
  _tile_dpbf16ps(1, 5, x_tile);                                                   \
  SPILLWAY_SPLIT_SHARE(product, num_products, 1);                                 \
  SPILLWAY_TILE_LOAD(4, a + (2 * Parts(kType) + (weight_part)) * kTileBytes, 64); \
  _tile_dpbf16ps(2, 4, x_tile);                                                   \
  SPILLWAY_SPLIT_SHARE(product, num_products, 2);                                 \
  SPILLWAY_TILE_LOAD(5, a + (3 * Parts(kType) + (weight_part)) * kTileBytes, 64); \
  _tile_dpbf16ps(3, 5, x_tile);                                                   \
  SPILLWAY_SPLIT_SHARE(product, num_products, 3)

#define SPILLWAY_STREAM_2X2(product, num_products, weight_part)               \
  SPILLWAY_TILE_LOAD(4, a + (weight_part)*kTileBytes, 64);                    \
  SPILLWAY_TILE_LOAD(5, a + (Parts(kType) + (weight_part)) * kTileBytes, 64); \
  _tile_dpbf16ps(0, 4, 6);                                                    \
  SPILLWAY_SPLIT_SHARE(product, num_products, 0);                             \
  _tile_dpbf16ps(1, 4, 7);                                                    \
  SPILLWAY_SPLIT_SHARE(product, num_products, 1);                             \
  _tile_dpbf16ps(2, 5, 6);                                                    \
  SPILLWAY_SPLIT_SHARE(product, num_products, 2);                             \
  _tile_dpbf16ps(3, 5, 7);                                                    \
  SPILLWAY_SPLIT_SHARE(product, num_products, 3)

#define SPILLWAY_LOAD_X2(part)                      \
  SPILLWAY_TILE_LOAD(6, x + (part)*part_bytes, 64); \
  SPILLWAY_TILE_LOAD(7, x_second + (part)*part_bytes, 64)

template <DType kType, int kOutBlocks>
template <typename Stream<kType, kOutBlocks>::Split kSplit>
void Stream<kType, kOutBlocks>::Step(int64_t step) const {
  const std::byte* a = Ring(step);
  const int64_t part_bytes = columns * 64;
  const std::byte* x = X(0, step);
  const int64_t ahead = Ahead(step + 1);
  if constexpr (kOutBlocks == 2) {
    const std::byte* x_second = X(1, step);
    SPILLWAY_LOAD_X2(0);
    if constexpr (kType == DType::kF16) {
      SPILLWAY_STREAM_2X2(0, 5, 0);
      SPILLWAY_STREAM_2X2(1, 5, 1);
      SPILLWAY_LOAD_X2(1);
      SPILLWAY_STREAM_2X2(2, 5, 1);
      SPILLWAY_STREAM_2X2(3, 5, 0);
      SPILLWAY_LOAD_X2(2);
      SPILLWAY_STREAM_2X2(4, 5, 0);
    } else {
      SPILLWAY_STREAM_2X2(0, 3, 0);
      SPILLWAY_LOAD_X2(1);
      SPILLWAY_STREAM_2X2(1, 3, 0);
      SPILLWAY_LOAD_X2(2);
      SPILLWAY_STREAM_2X2(2, 3, 0);
    }
  } else {
    SPILLWAY_TILE_LOAD(6, x, columns * 4);
    SPILLWAY_TILE_LOAD(7, x + part_bytes, columns * 4);
    if constexpr (kType == DType::kF16) {
      SPILLWAY_STREAM_4X1(0, 5, 0, 6);
      SPILLWAY_STREAM_4X1(1, 5, 1, 6);
      SPILLWAY_STREAM_4X1(2, 5, 1, 7);
      SPILLWAY_TILE_LOAD(6, x + 2 * part_bytes, columns * 4);
      SPILLWAY_STREAM_4X1(3, 5, 0, 7);
      SPILLWAY_STREAM_4X1(4, 5, 0, 6);
    } else {
      SPILLWAY_STREAM_4X1(0, 3, 0, 6);
      SPILLWAY_TILE_LOAD(6, x + 2 * part_bytes, columns * 4);
      SPILLWAY_STREAM_4X1(1, 3, 0, 7);
      SPILLWAY_STREAM_4X1(2, 3, 0, 6);
    }
  }
}

template <DType kType, int kOutBlocks>
void Stream<kType, kOutBlocks>::Run(float* sums) const {
  const bool tail = tile.in < step_end * kStepK;
  const int64_t full_end = tail ? step_end - 1 : step_end;
  if (full_end > step_begin) {
    SplitLines<Split::kFull, 0, kLines>(step_begin, Ahead(step_begin));
  } else {
    SplitLines<Split::kTail, 0, kLines>(step_begin, Ahead(step_begin));
  }
  for (int64_t begin = step_begin; begin < step_end; begin += kSumSteps) {
    const int64_t end = MinOf(step_end, begin + kSumSteps);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = begin; step < end; ++step) {
      if (step + 1 < full_end) {
        Step<Split::kFull>(step);
      } else if (step + 1 < step_end) {
        Step<Split::kTail>(step);
      } else {
        Step<Split::kNone>(step);
      }
    }
    AddTiles(sums, begin == 0);
  }
}

// sums += tiles 0 to 3, or = for the first.
template <DType kType, int kOutBlocks>
void Stream<kType, kOutBlocks>::AddTiles(float* sums, bool first) const {
  float* to = first ? sums : part;
  const int64_t tile_floats = 16 * columns;
  SPILLWAY_TILE_STORE(0, to, columns * 4);
  SPILLWAY_TILE_STORE(1, to + tile_floats, columns * 4);
  SPILLWAY_TILE_STORE(2, to + 2 * tile_floats, columns * 4);
  SPILLWAY_TILE_STORE(3, to + 3 * tile_floats, columns * 4);
  if (first) return;
  for (int64_t i = 0; i < 4 * tile_floats; i += 16) {
    _mm512_store_ps(sums + i, _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_load_ps(part + i)));
  }
}

// Sums of four pairs of blocks -> y, dropping what lies past the tile.
template <int kOutBlocks>
void FinishSums(const MatmulTile& tile, int64_t out, int64_t row, const float* sums) {
  constexpr int64_t kRowBlocks = 4 / kOutBlocks;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t first_out = out + i / kRowBlocks * 16;
    const int64_t first_row = row + i % kRowBlocks * 16;
    if (first_out >= tile.out_begin + tile.num_outs || first_row >= tile.row_begin + tile.num_rows)
      continue;
    FinishTile(tile, first_out, first_row, sums + i * 16 * AmxBlockRows(tile.total_rows));
  }
}

// Steps of a block of k.
struct Steps {
  int64_t begin;
  int64_t end;
};

// Elements from (`out`, steps.end) to where the worker goes on after this panel: the next panel of
// the block, the first of the next block, or the next tile.
inline int64_t JumpAfterPanel(const MatmulTile& tile, int64_t out, int64_t panel_outs,
                              Steps steps) {
  if (out + panel_outs < tile.out_begin + tile.num_outs) {
    return panel_outs * tile.in - (steps.end - steps.begin) * kStepK;
  }
  if (steps.end < AmxStepsK(tile.in)) return (tile.out_begin - out) * tile.in;
  return (tile.next_out_begin - out) * tile.in - steps.end * kStepK;
}

template <DType kType, int kOutBlocks>
void StreamBlock(const MatmulTile& tile, Steps steps) {
  constexpr int64_t kOuts = kOutBlocks * 16;
  constexpr int64_t kRows = 64 / kOutBlocks;
  std::byte* ring = tile.scratch;
  float* part = reinterpret_cast<float*>(tile.scratch + kAmxRingBytes);
  float* sums = part + 4 * 256;
  const int64_t row_end = tile.row_begin + tile.num_rows;
  for (int64_t out = tile.out_begin; out < tile.out_begin + tile.num_outs; out += kOuts) {
    const PanelRows rows(tile, out);
    for (int64_t row = tile.row_begin; row < row_end; row += kRows, sums += 4 * 256) {
      const int64_t jump = row + kRows < row_end ? -(steps.end - steps.begin) * kStepK
                                                 : JumpAfterPanel(tile, out, kOuts, steps);
      Stream<kType, kOutBlocks>{tile,     rows,        AmxBlockRows(tile.total_rows),
                                row / 16, steps.begin, steps.end,
                                jump,     ring,        part}
          .Run(sums);
      if (steps.end == AmxStepsK(tile.in)) FinishSums<kOutBlocks>(tile, out, row, sums);
    }
  }
}

template <DType kType, int kOutBlocks>
void StreamTile(const MatmulTile& tile) {
  // Equal blocks whose x is at most kAmxBlockBytes.
  const int64_t num_steps = AmxStepsK(tile.in);
  const int64_t x_bytes = (tile.num_rows + 15) / 16 * num_steps * AmxStepBytes(tile.total_rows);
  const int64_t num_blocks = (x_bytes + kAmxBlockBytes - 1) / kAmxBlockBytes;
  const int64_t block_steps =
      ((num_steps + num_blocks - 1) / num_blocks + kSumSteps - 1) / kSumSteps * kSumSteps;
  for (int64_t step = 0; step < num_steps; step += block_steps) {
    StreamBlock<kType, kOutBlocks>(tile, {step, MinOf(num_steps, step + block_steps)});
  }
}

template <DType kType>
void MulTile(const MatmulTile& tile) {
  tile.total_rows <= 16 ? StreamTile<kType, 4>(tile) : StreamTile<kType, 2>(tile);
}

}  // namespace

void PackAmx(const AmxPackTask& task) {
  std::byte* to =
      task.packed + (task.block * AmxStepsK(task.in) + task.step_begin) * AmxStepBytes(task.rows);
  for (int64_t step = task.step_begin; step < task.step_end;
       ++step, to += AmxStepBytes(task.rows)) {
    PackStep(task, step, to);
  }
}

void MatmulTileAmx(const MatmulTile& tile) {
  Configure(AmxBlockRows(tile.total_rows));
  tile.piece->weight_dtype == DType::kF16 ? MulTile<DType::kF16>(tile)
                                          : MulTile<DType::kBF16>(tile);
  _tile_release();
}

}  // namespace spillway::kernels
