// Matmul of 16-bit weights with AVX512-BF16: x and fp16 weights are rounded to bf16, to the nearest
// even; a lane adds the products of two k to its fp32 sum in one operation, which is twice what an
// FMA does. What rounding loses is up to 2^-8 of either factor; the unit flushes denormals.
// Order of one element: for each block of 1024 k, lane l sums the pairs (2l, 2l + 1) of every 32 k
// in rising order; a fixed tree adds the lanes; the block sums are added in order. x is rounded
// once per call (PackBf16). bf16 weights are read where they lie, fp16 weights rounded in registers
// for few rows, else a panel at a time.
#include <immintrin.h>

#include "kernels/matmul/matmul_finish.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kStepK = 32;
constexpr int64_t kBlockSteps = kSimdBlockK / kStepK;
constexpr int64_t kStepWords = kStepK;  // of 16 bits: a line of one row
// Accumulators are kBf16GroupRows x kOuts registers: 24 of 32 leave room for x and one weight.
constexpr int kRows = kBf16GroupRows;
constexpr int kOuts = 6;

using Line = __m512bh;  // 32 k

inline Line RoundLine(__m512 first, __m512 second) { return _mm512_cvtne2ps_pbh(second, first); }

// 32 weights as they are multiplied, or the last `n` of a row and zeros.
template <DType kType>
inline Line LoadWeights(const uint16_t* from) {
  if constexpr (kType == DType::kBF16) return reinterpret_cast<Line>(_mm512_loadu_si512(from));
  return RoundLine(Simd::LoadHalf(from), Simd::LoadHalf(from + 16));
}
template <DType kType>
inline Line LoadLastWeights(const uint16_t* from, int64_t n) {
  if constexpr (kType == DType::kBF16) {
    return reinterpret_cast<Line>(
        _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ULL << n) - 1), from));
  }
  return RoundLine(Simd::LoadHalfPart(from, MinOf(n, 16)),
                   Simd::LoadHalfPart(from + 16, n > 16 ? n - 16 : 0));
}

// Rows of x side by side, a line each and then the next step's.
struct RowsOfX {
  const uint16_t* lines;
  int64_t step_words;

  template <int kR>
  inline void Load(int64_t step, Line (&x)[kR]) const {
    const uint16_t* from = lines + step * step_words;
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      x[r] = reinterpret_cast<Line>(_mm512_load_si512(from + r * kStepWords));
    }
  }
};

// Lines of 16-bit weights to prefetch meanwhile, a row of them for each of outputs [begin, end).
struct Coming {
  const char* rows;
  int64_t row_bytes;
  int begin;
  int end;

  inline void Prefetch(int64_t step) const {
    for (int out = begin; out < end; ++out) {
      __builtin_prefetch(rows + out * row_bytes + step * 64, 0, 2);
    }
  }
};

// Weights in place, rows `in` elements apart, or as a panel [step][kO] of rounded lines.
template <int kO, DType kType>
struct StoredWeights {
  const uint16_t* rows;
  int64_t in;

  inline Line Load(int64_t step, int out) const {
    return LoadWeights<kType>(rows + out * in + step * kStepK);
  }
  inline Line LoadLast(int64_t step, int out, int64_t n) const {
    return LoadLastWeights<kType>(rows + out * in + step * kStepK, n);
  }
};
template <int kO>
struct PanelWeights {
  const uint16_t* lines;

  inline Line Load(int64_t step, int out) const {
    return reinterpret_cast<Line>(_mm512_load_si512(lines + (step * kO + out) * kStepWords));
  }
  inline Line LoadLast(int64_t step, int out, int64_t /*n*/) const { return Load(step, out); }
};

template <int kR, int kO>
inline void MulStep(const Line (&x)[kR], Line w, int out, __m512 (&acc)[kR * kO]) {
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) {
    acc[r * kO + out] = _mm512_dpbf16_ps(acc[r * kO + out], x[r], w);
  }
}

// kR rows by kO outputs over `count` k, weights and x from the first of them on.
template <int kR, int kO, typename Weights>
void MulBlock(const RowsOfX& rows, const Weights& weights, int64_t count, const Coming& coming,
              float* sums) {
  // Unrolled by force throughout: an index that is not a constant would put the accumulators in
  // memory.
  __m512 acc[kR * kO];
#pragma GCC unroll 32
  for (int i = 0; i < kR * kO; ++i) acc[i] = Simd::Zero();
  const int64_t whole = count / kStepK;
  Line x[kR];
  for (int64_t step = 0; step < whole; ++step) {
    rows.Load(step, x);
    coming.Prefetch(step);
#pragma GCC unroll 8
    for (int out = 0; out < kO; ++out) MulStep<kR, kO>(x, weights.Load(step, out), out, acc);
  }
  if (const int64_t n = count - whole * kStepK; n > 0) {
    rows.Load(whole, x);
#pragma GCC unroll 8
    for (int out = 0; out < kO; ++out) {
      MulStep<kR, kO>(x, weights.LoadLast(whole, out, n), out, acc);
    }
  }
  AddSums<kR * kO, kO>(acc, sums);
}

template <int kO, typename Weights>
void MulRows(const RowsOfX& rows, const Weights& weights, int64_t count, const Coming& coming,
             float* sums, int64_t num_rows) {
  switch (num_rows) {
    case 1:
      return MulBlock<1, kO>(rows, weights, count, coming, sums);
    case 2:
      return MulBlock<2, kO>(rows, weights, count, coming, sums);
    case 3:
      return MulBlock<3, kO>(rows, weights, count, coming, sums);
    default:
      return MulBlock<kRows, kO>(rows, weights, count, coming, sums);
  }
}

// Scratch of a worker: [step][out] lines, then sums [row][kSimdTileOuts].
constexpr int64_t kPanelBytes = kBlockSteps * kOuts * kStepWords * 2;
static_assert(kPanelBytes + kSimdTileRows * kSimdTileOuts * 4 <= kSimdScratchBytes);

template <int kO, DType kType>
void RoundPanel(const StoredWeights<kO, kType>& from, int64_t count, uint16_t* lines) {
  const int64_t whole = count / kStepK;
  for (int64_t step = 0; step < whole; ++step) {
    for (int out = 0; out < kO; ++out, lines += kStepWords) {
      _mm512_store_si512(lines, reinterpret_cast<__m512i>(from.Load(step, out)));
    }
  }
  if (const int64_t n = count - whole * kStepK; n > 0) {
    for (int out = 0; out < kO; ++out, lines += kStepWords) {
      _mm512_store_si512(lines, reinterpret_cast<__m512i>(from.LoadLast(whole, out, n)));
    }
  }
}

// A group of rows of the tile from k on. Groups are as PackBf16 lays them out.
RowsOfX GroupOfX(const MatmulTile& tile, int64_t row, int64_t k_begin) {
  const int64_t step_words = Bf16GroupRows(tile.total_rows) * kStepWords;
  const int64_t group = (tile.row_begin + row) / kRows;
  const int64_t steps = Bf16Steps(tile.in);
  return {reinterpret_cast<const uint16_t*>(tile.packed) +
              (group * steps + k_begin / kStepK) * step_words,
          step_words};
}

// Outputs [out, out + kO) of the tile from k_begin on, all rows.
template <int kO, DType kType>
void MulPanel(const MatmulTile& tile, int64_t out, int64_t k_begin) {
  uint16_t* panel = reinterpret_cast<uint16_t*>(tile.scratch);
  float* sums = reinterpret_cast<float*>(tile.scratch + kPanelBytes) + out;
  const int64_t count = MinOf(kSimdBlockK, tile.in - k_begin);
  const StoredWeights<kO, kType> stored = {
      static_cast<const uint16_t*>(tile.piece->weight) + (tile.out_begin + out) * tile.in + k_begin,
      tile.in};
  const PanelWeights<kO> rounded = {panel};
  const bool direct = kType == DType::kBF16 || tile.num_rows <= kRows;
  if (!direct) RoundPanel(stored, count, panel);
  // Each group of rows prefetches its share.
  const int share = static_cast<int>(DivideUp(kO, DivideUp(tile.num_rows, kRows)));
  const WeightAt following = NextWeight(tile, out, kO, k_begin, StepOfK(tile, kRows));
  const auto* next =
      static_cast<const uint16_t*>(tile.piece->weight) + following.out * tile.in + following.k;
  Coming coming = {reinterpret_cast<const char*>(next), tile.in * 2, 0, share};
  for (int64_t row = 0; row < tile.num_rows; row += kRows) {
    const RowsOfX x = GroupOfX(tile, row, k_begin);
    const int64_t num_rows = MinOf(kRows, tile.num_rows - row);
    float* to = sums + row * kSimdTileOuts;
    direct ? MulRows<kO>(x, stored, count, coming, to, num_rows)
           : MulRows<kO>(x, rounded, count, coming, to, num_rows);
    coming.begin = coming.end;
    coming.end = static_cast<int>(MinOf(kO, coming.end + share));
  }
}

template <DType kType>
void MulTile(const MatmulTile& tile) {
  float* sums = reinterpret_cast<float*>(tile.scratch + kPanelBytes);
  __builtin_memset(sums, 0, static_cast<size_t>(tile.num_rows * kSimdTileOuts) * sizeof(float));
  ForEachPanel<kOuts>(tile, StepOfK(tile, kRows),
                      [&]<int kO>(int64_t out, int64_t k) { MulPanel<kO, kType>(tile, out, k); });
  FinishTile(tile, sums);
}

}  // namespace

void PackBf16(const PackTask& task) {
  const int64_t rows = Bf16GroupRows(task.rows);
  const int64_t steps = Bf16Steps(task.in);
  uint16_t* to = reinterpret_cast<uint16_t*>(task.packed) +
                 (task.block * steps + task.step_begin) * rows * kStepWords;
  for (int64_t step = task.step_begin; step < task.step_end; ++step) {
    const int64_t n = MinOf(kStepK, task.in - step * kStepK);
    for (int64_t row = task.block * rows; row < (task.block + 1) * rows; ++row, to += kStepWords) {
      if (row >= task.rows) continue;  // never read
      const float* from = task.x + row * task.x_stride + step * kStepK;
      const Line line = RoundLine(Simd::LoadPart(from, MinOf(n, 16)),
                                  Simd::LoadPart(from + 16, n > 16 ? n - 16 : 0));
      _mm512_store_si512(to, reinterpret_cast<__m512i>(line));
    }
  }
}

void MatmulTileBf16(const MatmulTile& tile) {
  tile.piece->weight_dtype == DType::kF16 ? MulTile<DType::kF16>(tile)
                                          : MulTile<DType::kBF16>(tile);
}

}  // namespace spillway::kernels
