// Matmul on the AMX tile unit: bf16 products, fp32 sums.
// An fp16 weight is hi + lo exactly (8 + 3 bits of bf16), x is x1 + x2 to 17 bits (8 + 8, each
// rounded). Per step of 32 k an element takes lo*x1, hi*x1, hi*x2 in this order into one fp32
// accumulator; bf16 weights take w*x1, w*x2. What is dropped (lo*x2 and the rest of x) is below
// 2^-16 of a product and random in sign: 3e-6 of the products' root-mean-square, measured, where
// bf16 or TF32 units lose 1000 or 100 times as much. Sums of 512 k are added in order. This fixes
// every bit, whatever the number of rows. The unit flushes denormals: parts of x under 2^-126 count
// as zero. The weights are the A tile (16 outputs x 32 k, as they lie in memory) and x the B tile
// (pairs of k x rows), so that no weight is transposed. x is split once per call (PackAmx), weights
// as they are met.
#include <immintrin.h>

#include "kernels/matmul_finish.h"
#include "kernels/matmul_isa.h"
#include "kernels/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kStepK = 32;
constexpr int64_t kTileBytes = 1024;

// Weight parts per value.
constexpr int64_t Parts(DType dtype) { return dtype == DType::kBF16 ? 1 : 2; }

// Steps that are split at a time: quantised weights have one minimum and one step for two.
constexpr int UnitSteps(DType dtype) { return IsQuantised(dtype) ? 2 : 1; }
constexpr int64_t UnitBytes(DType dtype) {
  return IsQuantised(dtype) ? GroupBytes(dtype) : kStepK * 2;
}

// Tile registers by number. The intrinsics of GCC 12 lack the "memory" clobber, so stores could
// sink below a tile load.
template <int kTile>
inline void LoadTile(const std::byte* base, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(base), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void StoreTile(float* base, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(base), "r"(stride), "i"(kTile) : "memory");
}
// sums += weights x
template <int kSums, int kWeights, int kX>
inline void MulTiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kWeights), "i"(kX));
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles from 0 accumulate [16 outs][columns], those from `first_weights` to 5 hold weights, 6 and 7
// hold x.
inline void Configure(int64_t columns, int first_weights) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    const bool weights = tile >= first_weights && tile <= 5;
    config.column_bytes[tile] = weights ? 64 : static_cast<uint16_t>(columns * 4);
  }
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

struct Halves {
  __m512i low;
  __m512i high;
};

// bf16 of f and then of what is left, 8 bits each, as the top halves of floats. Ties go away from
// zero: an add and a mask, where rounding to even takes four instructions.
inline __m512i Round(__m512 f) {
  return _mm512_add_epi32(_mm512_castps_si512(f), _mm512_set1_epi32(0x8000));
}
inline __m512 Rest(__m512 f, __m512i rounded) {
  const __m512i top = _mm512_and_si512(rounded, _mm512_set1_epi32(-65536));
  return _mm512_sub_ps(f, _mm512_castsi512_ps(top));
}

// The top 16 bits of each word of f1 and f0, f0's in the low halves: bf16 pairs (k, k + 16).
inline __m512i TopBits(__m512i f0, __m512i f1) {
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(f0, 16), f1, _mm512_set1_epi32(-65536),
                                   0xF8);  // a | (b & c)
}

// hi of a line of weights (k and k + 16) to its row in one tile, lo to that in another.
[[gnu::always_inline]] inline void StoreParts(__m512 f0, __m512 f1, int64_t part_bytes,
                                              std::byte* to) {
  const __m512i hi0 = Round(f0);
  const __m512i hi1 = Round(f1);
  _mm512_store_si512(to, TopBits(hi0, hi1));
  _mm512_store_si512(to + part_bytes, TopBits(_mm512_castps_si512(Rest(f0, hi0)),
                                              _mm512_castps_si512(Rest(f1, hi1))));
}

// One line (32 k) of one output's weights -> its row in the tile, or two tiles. kTail: the last `n`
// < 32 of a row.
template <DType kType, bool kTail>
[[gnu::always_inline]] inline void SplitLine(const uint16_t* weight, int64_t n, std::byte* to) {
  if constexpr (kType == DType::kBF16) {
    const __mmask32 mask = kTail ? (1U << n) - 1U : ~0U;
    const __m512i line =
        kTail ? _mm512_maskz_loadu_epi16(mask, weight) : _mm512_loadu_si512(weight);
    _mm512_store_si512(to, line);
  } else {
    const __m512 f0 = kTail ? Simd::LoadHalfPart(weight, MinOf(n, 16)) : Simd::LoadHalf(weight);
    const __m512 f1 =
        kTail ? Simd::LoadHalfPart(weight + 16, n > 16 ? n - 16 : 0) : Simd::LoadHalf(weight + 16);
    StoreParts(f0, f1, kTileBytes, to);
  }
}

// A group of 4-bit weights (64 k) of one output -> its rows in four tiles, part_bytes apart: hi and
// lo of two steps. A group has 16 values, so each is made and split once: tables of a value's part
// in both halves of a word, of which vpermw takes bits 1 to 4 of the index as the code and does not
// mind bit 0. Two rotations bring the codes there, in the order of the tiles (kNibbleBegin): 16
// instructions for 64 weights, on two ports.
[[gnu::always_inline]] inline void SplitGroup4(const std::byte* codes, const float* head,
                                               int64_t part_bytes, std::byte* to) {
  const __m512 code = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 values =
      Simd::ToHalfAndBack(_mm512_fmadd_ps(code, _mm512_set1_ps(head[1]), _mm512_set1_ps(head[0])));
  const __m512i rounded = Round(values);
  const __m512i twice = _mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302);
  const __m512i hi = _mm512_shuffle_epi8(rounded, twice);
  const __m512i lo = _mm512_shuffle_epi8(_mm512_castps_si512(Rest(values, rounded)), twice);
  const __m512i words =
      _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __m512i turns = _mm512_setr_epi32(31, 31, 31, 31, 31, 31, 31, 31, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m512i first = _mm512_rorv_epi32(words, turns);
  const __m512i second = _mm512_ror_epi32(first, 8);
  _mm512_store_si512(to, _mm512_permutexvar_epi16(first, hi));
  _mm512_store_si512(to + part_bytes, _mm512_permutexvar_epi16(first, lo));
  _mm512_store_si512(to + 2 * part_bytes, _mm512_permutexvar_epi16(second, hi));
  _mm512_store_si512(to + 3 * part_bytes, _mm512_permutexvar_epi16(second, lo));
}

// The same of 8 bits, each made and split by itself.
[[gnu::always_inline]] inline void SplitGroup8(const std::byte* codes, const float* head,
                                               int64_t part_bytes, std::byte* to) {
  const __m512 minimum = _mm512_set1_ps(head[0]);
  const __m512 step = _mm512_set1_ps(head[1]);
  const auto load = [&](int64_t k) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + k));
    return Simd::ToHalfAndBack(
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), step, minimum));
  };
  StoreParts(load(0), load(16), part_bytes, to);
  StoreParts(load(32), load(48), part_bytes, to + 2 * part_bytes);
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

// Which k sit together in a pair must match the weights' tiles: (k, k + 16) for split weights,
// (2k, 2k + 1) for bf16 as it lies in memory.
inline Halves LoadPairs(const float* x, int64_t n, DType weight_dtype) {
  const __m512 f0 = Simd::LoadPart(x, MinOf(n, 16));
  const __m512 f1 = Simd::LoadPart(x + 16, n > 16 ? n - 16 : 0);
  if (weight_dtype != DType::kBF16) return {_mm512_castps_si512(f0), _mm512_castps_si512(f1)};
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
  __m512i parts[kAmxXParts][16];
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t row = task.block * columns + column;
    Halves x = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (row < task.rows) {
      x = LoadPairs(task.x + row * task.x_stride + step * kStepK, n, task.weight_dtype);
    }
    const __m512 f0 = _mm512_castsi512_ps(x.low);
    const __m512 f1 = _mm512_castsi512_ps(x.high);
    const __m512i top0 = Round(f0);
    const __m512i top1 = Round(f1);
    parts[0][column] = TopBits(top0, top1);
    parts[1][column] = TopBits(Round(Rest(f0, top0)), Round(Rest(f1, top1)));
  }
  for (int part = 0; part < kAmxXParts; ++part) {
    StorePart(parts[part], columns, to + part * columns * 64);
  }
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

// Weights are split as they stream by, while the unit works on the step before: a panel of 16
// outputs against 1, 2 or 4 blocks of 16 rows. Sixteen rows of weights are as many streams as the
// processor's own prefetcher follows; 64 at a time read memory a tenth slower. More rows split the
// same weights again, which costs less than writing and reading a split panel, and k is cut into
// blocks whose x stays in L2 for all outputs of a tile.

// Tiles are emptied into fp32 sums after this many steps (512 k), counted from 0. The unit rounds
// after every pair of k, so one long sum in a tile errs twice as much as the plainest FMA loop;
// short ones err less than it.
constexpr int64_t kSumSteps = 16;

// Weights are asked for in runs of consecutive units of one row, this many runs ahead of the split:
// unit by unit, 16 rows apart in memory, every request would open another DRAM page.
constexpr int64_t kRunUnits = 4;
constexpr int64_t kRunsAhead = 2;

constexpr int64_t kPanelOuts = 16;

// Two panels of quantised weights share each load of x where there is one block of rows: 156 us for
// 175 us of 2 M weights in L2 at 4 bits, one row, one thread. Their splitting is the limit there
// (12 cycles for a row of a group, measured alone), not memory; 16-bit weights wait for memory.
constexpr int NumPanels(DType dtype, int row_blocks) {
  return IsQuantised(dtype) && row_blocks == 1 ? 2 : 1;
}

// Where the outputs of one or two panels lie; those past the end repeat the last one, and their
// results are dropped.
template <int kPanels>
struct PanelRows {
  const std::byte* weight[kPanels * kPanelOuts];

  PanelRows(const MatmulTile& tile, int64_t row_bytes, int64_t first_out) {
    const std::byte* base = static_cast<const std::byte*>(tile.piece->weight);
    for (int64_t i = 0; i < kPanels * kPanelOuts; ++i) {
      weight[i] = base + MinOf(first_out + i, tile.out_begin + tile.num_outs - 1) * row_bytes;
    }
  }
};

// What of the next unit is split meanwhile. kTail: a unit of which the row has a part only; groups
// are stored whole.
enum class Split { kNone, kFull, kTail };

template <DType kType, int kRowBlocks>
struct Stream {
  static constexpr int kPanels = NumPanels(kType, kRowBlocks);
  static constexpr int kLines = kPanels * kPanelOuts;
  static constexpr int kPhases = kType == DType::kBF16 ? 2 : 3;
  static constexpr int kUnitSteps = UnitSteps(kType);
  static constexpr int64_t kUnitBytes = UnitBytes(kType);
  static constexpr int64_t kPartBytes = kPanels * kTileBytes;
  static constexpr int64_t kStepRingBytes = Parts(kType) * kPartBytes;

  const MatmulTile& tile;
  const PanelRows<kPanels>& rows;
  int64_t columns;
  int64_t row_block;  // the first, of 16 rows of the call
  int64_t step_begin;
  int64_t step_end;
  int64_t jump;     // bytes from (this panel, step_end) to where this worker likely reads next
  std::byte* ring;  // 2 x [step of a unit][part][panel][16 outs][64 B]
  float* heads;     // minimum and step of a group of each line
  float* part;      // the sums of one run of kSumSteps

  // The parts that a phase multiplies: lo*x1, hi*x1, hi*x2.
  static constexpr int WeightPart(int phase) { return kPhases == 3 && phase == 0 ? 1 : 0; }
  static constexpr int XPart(int phase) { return phase == kPhases - 1 ? 1 : 0; }

  std::byte* Ring(int64_t step) const {
    return ring + (step & (2 * kUnitSteps - 1)) * kStepRingBytes;
  }
  // Steps are not negative; said so, the division is a shift.
  static constexpr int64_t UnitOf(int64_t step) {
    return static_cast<int64_t>(static_cast<uint64_t>(step) / kUnitSteps);
  }

  template <int kTile>
  [[gnu::always_inline]] inline void LoadWeights(int64_t step, int panel, int weight_part) const {
    LoadTile<kTile>(Ring(step) + weight_part * kPartBytes + panel * kTileBytes, 64);
  }
  // Past the last block of rows the last is repeated, and what comes of it is dropped.
  template <int kTile>
  [[gnu::always_inline]] inline void LoadX(int64_t step, int block, int x_part) const {
    const int64_t last = AmxNumBlocks(tile.total_rows) - 1;
    const int64_t at = MinOf(row_block + block, last) * AmxStepsK(tile.in) + step;
    LoadTile<kTile>(tile.packed + (at * kAmxXParts + x_part) * columns * 64, columns * 4);
  }

  // Asks for what is split later, while line `line` of the unit at `step` is.
  [[gnu::always_inline]] inline void Prefetch(int64_t step, int line, int64_t ahead) const {
    const int64_t in_run = UnitOf(step) & (kRunUnits - 1);
    const std::byte* coming = rows.weight[line / kRunUnits * kRunUnits + in_run];
    _mm_prefetch(reinterpret_cast<const char*>(coming) + ahead + line % kRunUnits * kUnitBytes,
                 _MM_HINT_T0);
  }

  // The heads of lines as floats in memory, from where they are broadcast without a shuffle. GCC
  // neither converts from memory nor keeps from an address in a register for each by itself.
  template <int kBegin, int kEnd>
  [[gnu::always_inline]] inline void WidenHeads(int64_t step) const {
    float* to = heads;
    asm volatile("" : "+r"(to));
#pragma GCC unroll 32
    for (int line = kBegin; line < kEnd; ++line) {
      const std::byte* group = rows.weight[line] + UnitOf(step) * kUnitBytes;
      __m128 head;
      asm("vcvtph2ps %1, %0" : "=x"(head) : "m"(*reinterpret_cast<const int64_t*>(group)));
      _mm_storel_pi(reinterpret_cast<__m64*>(to + 2 * line), head);
    }
    asm volatile("" ::: "memory");
  }

  // Lines [kBegin, kEnd) of the unit at `step`.
  template <Split kSplit, int kBegin, int kEnd>
  [[gnu::always_inline]] inline void SplitLines(int64_t step, int64_t ahead) const {
    if constexpr (kSplit != Split::kNone) {
      if constexpr (IsQuantised(kType)) WidenHeads<kBegin, kEnd>(step);
      std::byte* to = Ring(step);
#pragma GCC unroll 32
      for (int line = kBegin; line < kEnd; ++line) {
        Prefetch(step, line, ahead);
        const std::byte* from = rows.weight[line] + UnitOf(step) * kUnitBytes;
        const std::byte* codes = from + kGroupHeadBytes;
        if constexpr (kType == DType::kQ4) {
          SplitGroup4(codes, heads + 2 * line, kPartBytes, to + line * 64);
        } else if constexpr (kType == DType::kQ8) {
          SplitGroup8(codes, heads + 2 * line, kPartBytes, to + line * 64);
        } else {
          SplitLine<kType, kSplit == Split::kTail>(reinterpret_cast<const uint16_t*>(from),
                                                   tile.in - step * kStepK, to + line * 64);
        }
      }
    }
  }

  // Bytes from the start of a row to the run asked for while the unit at `step` is split: in the
  // same row or behind the jump.
  int64_t Ahead(int64_t step) const {
    const int64_t coming = (UnitOf(step) & -kRunUnits) + kRunsAhead * kRunUnits;
    return coming * kUnitBytes + (coming * kUnitSteps < step_end ? 0 : jump);
  }

  // Product number kProduct of a unit of kSteps steps, with the loads it is the first to need, and
  // its share of the next unit's split. Tiles 4 and 5 hold weights, 2 and 3 those of a second
  // panel, 6 and 7 x.
  template <Split kSplit, int kSteps, int kProduct>
  [[gnu::always_inline]] inline void Product(int64_t unit_step, int64_t ahead) const {
    constexpr int kSums = kPanels * kRowBlocks;
    constexpr int kStepProducts = kPhases * kSums;
    constexpr int kPhase = kProduct % kStepProducts / kSums;
    constexpr int kPanel = kProduct % kPanels;  // of two panels there is one block of rows
    constexpr int kRow = kPanels == 1 ? kProduct % kRowBlocks : 0;
    constexpr int kWeight = WeightPart(kPhase);
    constexpr int kX = XPart(kPhase);
    constexpr bool kNewWeight = kPhase == 0 || kWeight != WeightPart(kPhase - 1);
    constexpr bool kNewX = kPhase == 0 || kX != XPart(kPhase - 1);
    constexpr int kWeightTile = 4 - 2 * kPanel + kWeight;
    constexpr int kXTile = 6 + (kRowBlocks == 1 ? kX : kRow % 2);
    const int64_t step = unit_step + kProduct / kStepProducts;
    if constexpr (kNewWeight && kRow == 0) LoadWeights<kWeightTile>(step, kPanel, kWeight);
    if constexpr (kPanel == 0 && (kRowBlocks == 4 || kNewX)) LoadX<kXTile>(step, kRow, kX);
    MulTiles<kPanel + kRow, kWeightTile, kXTile>();
    constexpr int kProducts = kSteps * kStepProducts;
    SplitLines<kSplit, kProduct * kLines / kProducts, (kProduct + 1) * kLines / kProducts>(
        unit_step + kUnitSteps, ahead);
    if constexpr (kProduct + 1 < kProducts) {
      Product<kSplit, kSteps, kProduct + 1>(unit_step, ahead);
    }
  }

  // sums += the tiles, or = for the first.
  void AddTiles(float* sums, bool first) const {
    float* to = first ? sums : part;
    const int64_t tile_floats = kPanelOuts * columns;
    StoreTile<0>(to, columns * 4);
    if constexpr (kPanels * kRowBlocks > 1) StoreTile<1>(to + tile_floats, columns * 4);
    if constexpr (kRowBlocks > 2) {
      StoreTile<2>(to + 2 * tile_floats, columns * 4);
      StoreTile<3>(to + 3 * tile_floats, columns * 4);
    }
    if (first) return;
    for (int64_t i = 0; i < kPanels * kRowBlocks * tile_floats; i += 16) {
      _mm512_store_ps(sums + i, _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_load_ps(part + i)));
    }
  }

  // The unit at `step`, while the next one is split.
  void MulUnit(int64_t step, int64_t full_end) const {
    const int64_t next = step + kUnitSteps;
    if (next < full_end) return Product<Split::kFull, kUnitSteps, 0>(step, Ahead(next));
    if (next < step_end) return Product<Split::kTail, kUnitSteps, 0>(step, Ahead(next));
    if (next == step_end) return Product<Split::kNone, kUnitSteps, 0>(step, 0);
    Product<Split::kNone, 1, 0>(step, 0);  // half a group
  }

  void Run(float* sums) const {
    const bool tail = !IsQuantised(kType) && tile.in < step_end * kStepK;
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
      if constexpr (kRowBlocks > 2) {
        _tile_zero(2);
        _tile_zero(3);
      }
      for (int64_t step = begin; step < end; step += kUnitSteps) MulUnit(step, full_end);
      AddTiles(sums, begin == 0);
    }
  }
};

// Sums of panels -> y, dropping what lies past the tile.
template <int kPanels, int kRowBlocks>
void FinishSums(const MatmulTile& tile, int64_t out, int64_t row, const float* sums) {
  const int64_t columns = AmxBlockRows(tile.total_rows);
  for (int64_t i = 0; i < kPanels * kRowBlocks; ++i, sums += kPanelOuts * columns) {
    const int64_t at_out = out + (kPanels == 1 ? 0 : i * kPanelOuts);
    const int64_t at_row = row + (kPanels == 1 ? i * 16 : 0);
    const bool within =
        at_out < tile.out_begin + tile.num_outs && at_row < tile.row_begin + tile.num_rows;
    if (within) FinishTile(tile, at_out, at_row, sums);
  }
}

// Steps of a block of k.
struct Steps {
  int64_t begin;
  int64_t end;
};

// Of a run of steps of one row, about: groups are not cut.
template <DType kType>
constexpr int64_t BytesOf(int64_t num_steps) {
  return num_steps * UnitBytes(kType) / UnitSteps(kType);
}

// Bytes from (`out`, steps.end) to where the worker goes on after these panels: the next ones of
// the block, the first of the next block, or the next tile.
template <DType kType>
int64_t JumpAfterPanels(const MatmulTile& tile, int64_t out, int64_t num_outs, Steps steps) {
  const int64_t row_bytes = RowBytes(kType, tile.in);
  if (out + num_outs < tile.out_begin + tile.num_outs) {
    return num_outs * row_bytes - BytesOf<kType>(steps.end - steps.begin);
  }
  if (steps.end < AmxStepsK(tile.in)) return (tile.out_begin - out) * row_bytes;
  return (tile.next_out_begin - out) * row_bytes - BytesOf<kType>(steps.end);
}

template <DType kType, int kRowBlocks>
void StreamBlock(const MatmulTile& tile, Steps steps) {
  constexpr int kPanels = NumPanels(kType, kRowBlocks);
  constexpr int64_t kOuts = kPanels * kPanelOuts;
  constexpr int64_t kRows = kRowBlocks * 16;
  std::byte* ring = tile.scratch;
  float* heads = reinterpret_cast<float*>(tile.scratch + kAmxRingBytes);
  float* part = reinterpret_cast<float*>(tile.scratch + kAmxRingBytes + kAmxHeadBytes);
  float* sums = part + 4 * 256;
  const int64_t columns = AmxBlockRows(tile.total_rows);
  const int64_t row_end = tile.row_begin + tile.num_rows;
  for (int64_t out = tile.out_begin; out < tile.out_begin + tile.num_outs; out += kOuts) {
    const PanelRows<kPanels> rows(tile, RowBytes(kType, tile.in), out);
    for (int64_t row = tile.row_begin; row < row_end; row += kRows) {
      const int64_t jump = row + kRows < row_end ? -BytesOf<kType>(steps.end - steps.begin)
                                                 : JumpAfterPanels<kType>(tile, out, kOuts, steps);
      Stream<kType, kRowBlocks>{tile,      rows, columns, row / 16, steps.begin,
                                steps.end, jump, ring,    heads,    part}
          .Run(sums);
      if (steps.end == AmxStepsK(tile.in)) FinishSums<kPanels, kRowBlocks>(tile, out, row, sums);
      sums += kRows * kOuts;
    }
  }
}

template <DType kType, int kRowBlocks>
void StreamTile(const MatmulTile& tile) {
  // Equal blocks whose x is at most kAmxBlockBytes.
  const int64_t num_steps = AmxStepsK(tile.in);
  const int64_t x_bytes = (tile.num_rows + 15) / 16 * num_steps * AmxStepBytes(tile.total_rows);
  const int64_t num_blocks = (x_bytes + kAmxBlockBytes - 1) / kAmxBlockBytes;
  const int64_t block_steps =
      ((num_steps + num_blocks - 1) / num_blocks + kSumSteps - 1) / kSumSteps * kSumSteps;
  for (int64_t step = 0; step < num_steps; step += block_steps) {
    StreamBlock<kType, kRowBlocks>(tile, {step, MinOf(num_steps, step + block_steps)});
  }
}

template <DType kType>
void MulTile(const MatmulTile& tile) {
  if (tile.num_rows <= 16) return StreamTile<kType, 1>(tile);
  tile.num_rows <= 32 ? StreamTile<kType, 2>(tile) : StreamTile<kType, 4>(tile);
}

inline void MulTileOf(const MatmulTile& tile) {
  switch (tile.piece->weight_dtype) {
    case DType::kF16:
      return MulTile<DType::kF16>(tile);
    case DType::kBF16:
      return MulTile<DType::kBF16>(tile);
    case DType::kQ8:
      return MulTile<DType::kQ8>(tile);
    case DType::kQ4:
      return MulTile<DType::kQ4>(tile);
    case DType::kF32:
      break;
  }
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
  const int num_panels = NumPanels(tile.piece->weight_dtype, tile.num_rows <= 16 ? 1 : 2);
  Configure(AmxBlockRows(tile.total_rows), num_panels == 2 ? 2 : 4);
  MulTileOf(tile);
  _tile_release();
}

}  // namespace spillway::kernels
