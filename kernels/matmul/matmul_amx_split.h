// The parts of matmul_amx.cc that make tiles: weights split into bf16 parts, or rounded, as they
// stream by, quantised ones as the floats they stand for, and x packed once per call. Private to
// it: compiled with the unit's flags.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/convert/quantise_simd.h"
#include "kernels/matmul/matmul_amx_tile.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kStepK = 32;

// Weight parts per value: a number of kMxfp4 times its scale has two bits after the first.
constexpr int64_t Parts(DType dtype, AmxX x) {
  const bool is_bf16 = dtype == DType::kBF16 || dtype == DType::kMxfp4;
  return is_bf16 || x == AmxX::kRounded ? 1 : 2;
}

// Bytes of a row before step `step`, of quantised weights in whole groups.
template <DType kType>
constexpr int64_t BytesBefore(int64_t step) {
  if constexpr (!IsQuantised(kType)) return step * kStepK * 2;
  return DivideUp(step * kStepK, kGroupWeights) * GroupBytes(kType);
}

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

// 32 floats as bf16 in their order.
inline __m512i RoundLine(__m512 f0, __m512 f1) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(f1, f0));
}

struct Floats {
  __m512 first;
  __m512 second;
};

// 32 floats as sums of two bf16; what an fp16 has beyond the first is one, of others it is cut.
struct LineParts {
  __m512i high;
  __m512i low;
};

inline LineParts PartsOf(__m512 f0, __m512 f1) {
  const __m512i hi0 = Round(f0);
  const __m512i hi1 = Round(f1);
  return {TopBits(hi0, hi1),
          TopBits(_mm512_castps_si512(Rest(f0, hi0)), _mm512_castps_si512(Rest(f1, hi1)))};
}

// 32 floats -> their row in the tile, or in two.
template <DType kType, AmxX kX>
inline void StoreParts(__m512 f0, __m512 f1, std::byte* to) {
  if constexpr (kType == DType::kMxfp4) {
    _mm512_store_si512(to, TopBits(_mm512_castps_si512(f0), _mm512_castps_si512(f1)));
  } else if constexpr (kX == AmxX::kRounded) {
    _mm512_store_si512(to, RoundLine(f0, f1));
  } else {
    const LineParts parts = PartsOf(f0, f1);
    _mm512_store_si512(to, parts.high);
    _mm512_store_si512(to + kTileBytes, parts.low);
  }
}

// One line (32 k) of one output's weights -> its row in the tile, or two tiles. kTail: the last `n`
// < 32 of a row.
template <DType kType, AmxX kX, bool kTail>
void SplitLine(const std::byte* bytes, int64_t n, std::byte* to) {
  const uint16_t* weight = reinterpret_cast<const uint16_t*>(bytes);
  if constexpr (kType == DType::kBF16) {
    const __mmask32 mask = kTail ? (1U << n) - 1U : ~0U;
    const __m512i line =
        kTail ? _mm512_maskz_loadu_epi16(mask, weight) : _mm512_loadu_si512(weight);
    _mm512_store_si512(to, line);
  } else {
    const __m512 f0 = kTail ? Simd::LoadHalfPart(weight, MinOf(n, 16)) : Simd::LoadHalf(weight);
    const __m512 f1 =
        kTail ? Simd::LoadHalfPart(weight + 16, n > 16 ? n - 16 : 0) : Simd::LoadHalf(weight + 16);
    StoreParts<kType, kX>(f0, f1, to);
  }
}

// What the 16 codes of 4 bits stand for in each half of a group.
template <DType kType>
[[gnu::always_inline]] inline Floats ValuesOfCodes(const std::byte* group) {
  if constexpr (kType == DType::kMxfp4) {
    const __m512 numbers = _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F,
                                          -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F);
    const auto [first, second] = LoadHead<kType>(group);
    return {_mm512_mul_ps(numbers, first), _mm512_mul_ps(numbers, second)};
  } else {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const auto steps = LoadSteps<kType>(group);
    return {Simd::Fma(codes, steps.step[0], steps.minimum[0]),
            Simd::Fma(codes, steps.step[1], steps.minimum[1])};
  }
}

// A group of codes of 4 bits: the parts of their values are made once and looked up by the codes of
// k and k + 16, which the words have 16 bits apart. The values of the first half of the group are
// the even bf16 of the table, those of the second the odd ones.
template <DType kType>
[[gnu::always_inline]] inline void LookUpGroup(const std::byte* group, std::byte* to_first,
                                               std::byte* to_second) {
  const auto [first, second] = ValuesOfCodes<kType>(group);
  const __m512i words = _mm512_broadcast_i64x4(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + GroupHeadBytes(kType))));
  const __m512i nibble = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  const __m512i doubled = _mm512_set1_epi32(0x001E001E);
  const __m512i even =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_slli_epi32(words, 1), nibble), doubled);
  const __m512i shifted = _mm512_srlv_epi32(_mm512_srli_epi32(words, 7), nibble);
  const __m512i odd =
      _mm512_or_si512(_mm512_and_si512(shifted, doubled), _mm512_set1_epi32(0x00010001));
  if constexpr (kType == DType::kMxfp4) {
    const __m512i table = TopBits(_mm512_castps_si512(first), _mm512_castps_si512(second));
    _mm512_store_si512(to_first, _mm512_permutexvar_epi16(even, table));
    _mm512_store_si512(to_second, _mm512_permutexvar_epi16(odd, table));
  } else {
    const LineParts table = PartsOf(first, second);
    _mm512_store_si512(to_first, _mm512_permutexvar_epi16(even, table.high));
    _mm512_store_si512(to_first + kTileBytes, _mm512_permutexvar_epi16(even, table.low));
    _mm512_store_si512(to_second, _mm512_permutexvar_epi16(odd, table.high));
    _mm512_store_si512(to_second + kTileBytes, _mm512_permutexvar_epi16(odd, table.low));
  }
}

// A group of one output's quantised weights -> its rows in the tiles of two steps.
template <DType kType>
[[gnu::always_inline]] inline void SplitGroup(const std::byte* group, std::byte* to_first,
                                              std::byte* to_second) {
  if constexpr (CodeBits(kType) == 4) return LookUpGroup<kType>(group, to_first, to_second);
  Simd::F weights[kGroupVectors];
  LoadGroup<kType>(group, weights);
  StoreParts<kType, AmxX::kSplit>(weights[0], weights[1], to_first);
  StoreParts<kType, AmxX::kSplit>(weights[2], weights[3], to_second);
}

// Pairs of k in x must match the weights' tiles: (2k, 2k + 1) for bf16, as it lies in memory or
// rounded, and for numbers of 8 bits, (k, k + 16) for what is split.
inline Floats PairsOf(const Floats& x, DType weight_dtype) {
  if (weight_dtype != DType::kBF16 && weight_dtype != DType::kFp8) return x;
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {_mm512_permutex2var_ps(x.first, even, x.second),
          _mm512_permutex2var_ps(x.first, odd, x.second)};
}

template <AmxX kX>
void PackStep(const PackTask& task, int64_t step, std::byte* to) {
  const int64_t columns = AmxBlockRows(task.rows);
  const int64_t n = MinOf(kStepK, task.in - step * kStepK);
  __m512i parts[AmxXParts(kX)][16];
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t row = task.block * columns + column;
    Floats x = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (row < task.rows) {
      const float* from = task.x + row * task.x_stride + step * kStepK;
      x = {Simd::LoadPart(from, MinOf(n, 16)), Simd::LoadPart(from + 16, n > 16 ? n - 16 : 0)};
    }
    if constexpr (kX == AmxX::kRounded) {
      parts[0][column] = RoundLine(x.first, x.second);
    } else {
      const auto [f0, f1] = PairsOf(x, task.weight_dtype);
      const __m512i top0 = Round(f0);
      const __m512i top1 = Round(f1);
      parts[0][column] = TopBits(top0, top1);
      parts[1][column] = TopBits(Round(Rest(f0, top0)), Round(Rest(f1, top1)));
    }
  }
  for (int part = 0; part < AmxXParts(kX); ++part) {
    StoreColumns(parts[part], columns, to + part * columns * 64);
  }
}

}  // namespace
}  // namespace spillway::kernels
