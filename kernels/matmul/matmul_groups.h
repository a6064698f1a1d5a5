// The arithmetic of quantised weights where processors multiply bytes (AMX, AVX-512 VNNI): exact
// sums of codes in 32 bits.
// The 64 x of a group (quantise.h) are rounded to multiples of scale = their largest / 32639
// (16 bits, hence 1e-5 of the largest), 256 * high + low, a signed byte each; or, CodedX::kOneByte,
// of their largest / 127 (4e-3 of it), a signed byte. So the sum of
// code * x over a group comes out exact, in any order, and what is rounded is one conversion and
// three operations a group, in rising order of groups:
//   y = fma(minimum, total, fma(step * float(sum), scale, y)), total = float(sum of x) * scale.
// A group whose parts have steps of their own (PartsOfGroup) has a sum and a total of each, in
// their order. Codes are counted from 0, and those of kMxfp4 are twice its numbers, from -6 on, in
// steps of half its scale. This fixes every bit, whatever the number of rows and the unit. Nothing
// is dequantised. Groups of x whose largest is under 2^-100 count as zero. Private to the kernels;
// for files with AVX-512.
#pragma once

#include <immintrin.h>

#include "kernels/convert/quantise.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// The 64 x of a group as integers: lane i of part p is x[16 p + i].
struct GroupX {
  __m512i part[4];
  float scale;

  // Sum of parts [begin, end), scaled.
  float Total(int begin, int end) const {
    __m512i total = _mm512_setzero_si512();
    for (int i = begin; i < end; ++i) total = _mm512_add_epi32(total, part[i]);
    return static_cast<float>(_mm512_reduce_add_epi32(total)) * scale;
  }
};

constexpr float LargestOf(CodedX x) { return x == CodedX::kTwoBytes ? 127 * 256 + 127 : 127; }

template <CodedX kX>
inline GroupX RoundX(const float* x, int64_t n) {
  __m512 floats[4];
  __m512i largest_bits = _mm512_setzero_si512();  // integers, so that a NaN is the largest
  for (int part = 0; part < 4; ++part) {
    floats[part] = Simd::LoadPart(x + part * 16, MaxOf(0, MinOf(16, n - part * 16)));
    const __m512i bits = _mm512_castps_si512(Simd::Abs(floats[part]));
    largest_bits = _mm512_max_epi32(largest_bits, bits);
  }
  const float largest = _mm512_cvtss_f32(
      _mm512_castsi512_ps(_mm512_set1_epi32(_mm512_reduce_max_epi32(largest_bits))));
  const __m512 inverse = Simd::Set(largest >= 0x1p-100F ? LargestOf(kX) / largest : 0.0F);
  GroupX group;
  for (int part = 0; part < 4; ++part)
    group.part[part] = _mm512_cvtps_epi32(_mm512_mul_ps(floats[part], inverse));
  group.scale = largest * (1.0F / LargestOf(kX));
  return group;
}

// The lowest bytes of a group of x in the order of the codes, which is that of k but for those of 4
// bits under one step: of these (kNibbleBegin) word i has i, i + 32, i + 16 and i + 48.
inline __m512i LowBytes(const __m512i (&part)[4], DType dtype) {
  if (CodeBits(dtype) == 8 || PartsOfGroup(dtype) > 1) {
    __m512i bytes = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(part[0]));
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(part[1]), 1);
    bytes = _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(part[2]), 2);
    return _mm512_inserti32x4(bytes, _mm512_cvtepi32_epi8(part[3]), 3);
  }
  const __m512i byte = _mm512_set1_epi32(0xFF);
  const __m512i first = _mm512_and_si512(part[0], byte);
  const __m512i second = _mm512_slli_epi32(_mm512_and_si512(part[2], byte), 8);
  const __m512i third = _mm512_slli_epi32(_mm512_and_si512(part[1], byte), 16);
  const __m512i fourth = _mm512_slli_epi32(part[3], 24);
  return _mm512_or_si512(_mm512_or_si512(first, second), _mm512_or_si512(third, fourth));
}

// Codes of a group as bytes in the order in which they are stored, all low nibbles before the high
// ones; of 6 bits the lower four.
template <DType kType>
inline __m512i UnpackCodes(const std::byte* codes) {
  if constexpr (CodeBits(kType) == 8) return _mm512_loadu_si512(codes);
  const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  const __m512i both =
      _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  return _mm512_and_si512(_mm512_srlv_epi32(both, shifts), _mm512_set1_epi8(15));
}

// x is 256 * what this gives + its lowest byte, with signs.
inline void HighBytes(const __m512i (&part)[4], __m512i (&high)[4]) {
  for (int i = 0; i < 4; ++i)
    high[i] = _mm512_srli_epi32(_mm512_add_epi32(part[i], _mm512_set1_epi32(128)), 8);
}

// Minimum and step of 16 groups.
struct Heads {
  __m512 minimum;
  __m512 step;
};

template <DType kType>
inline Heads LoadHeads(const uint32_t* heads) {
  const __m512i both = _mm512_loadu_si512(heads);
  if constexpr (HasZeroPoint(kType)) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(kZeroMask));
    const __m512 zero = _mm512_cvtepi32_ps(_mm512_and_si512(both, mask));
    const __m512 scale = _mm512_castsi512_ps(_mm512_andnot_si512(mask, both));
    return {_mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(zero, scale)), scale};
  }
  return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)),
          _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)))};
}

// Calls `use` with the type of the weights. Requires: one whose codes are multiplied as they are,
// under one step for a group.
template <typename Use>
inline void WithCodes(DType dtype, Use use) {
  if (dtype == DType::kQ8) return use.template operator()<DType::kQ8>();
  if (dtype == DType::kInt8) return use.template operator()<DType::kInt8>();
  if (dtype == DType::kInt4) return use.template operator()<DType::kInt4>();
  use.template operator()<DType::kQ4>();
}

// The sums of 16 outputs, from those of high and of low bytes, or of two halves of the only ones.
template <CodedX kX>
inline __m512 SumOf(__m512i high, __m512i low) {
  if constexpr (kX == CodedX::kOneByte) return _mm512_cvtepi32_ps(_mm512_add_epi32(high, low));
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}

}  // namespace
}  // namespace spillway::kernels
