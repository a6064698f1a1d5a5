// The 16-lane AVX-512 form of Simd; see simd.h, its only includer.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace spillway::kernels {
namespace {

struct Simd {
  using F = __m512;
  using M = __mmask16;  // a truth of each lane
  static constexpr int kLanes = 16;

  static M Mask(int64_t n) { return static_cast<M>((1U << n) - 1U); }  // of the first n lanes
  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float value) { return _mm512_set1_ps(value); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static F LoadPart(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(Mask(n), p); }
  static void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static void StorePart(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, Mask(n), v); }

  // The lower half of the lanes from `low`, the upper from `high`.
  static F LoadHalves(const float* low, const float* high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high),
                              1);
  }

  // Lanes 2i and 2i + 1 change places.
  static F SwapNeighbours(F v) { return _mm512_permute_ps(v, 0xB1); }

  static F FromInts(F bits) { return _mm512_cvtepi32_ps(_mm512_castps_si512(bits)); }
  static F LoadBytes(const void* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
  }
  static F LoadNibbles(const void* p) {  // two in a byte, the lower first
    const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
    const __m512i nibbles = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28));
    return _mm512_cvtepi32_ps(_mm512_and_si512(nibbles, _mm512_set1_epi32(15)));
  }
  // min + scale * code of 64 codes of 4 bits: nibble j of word i goes to lane i of out[j]. Codes
  // look up their values in a register of 16: a permutation uses only the low 4 bits of an index.
  static void Dequantise(const void* p, F min, F scale, F (&out)[4]) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    const F codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const F values = Fma(scale, codes, min);
    out[0] = _mm512_permutexvar_ps(words, values);
    out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4), values);
    out[2] = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 8), values);
    out[3] = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 12), values);
  }
  // min + step * code of a group's 64 codes of 4 bits, in order of k (quantise.h), with a minimum
  // and a step for each half of them: nibbles 0 and 1 of the eight words are the first 16, then 4
  // and 5, 2 and 3, 6 and 7.
  static void DequantiseGroup(const void* p, const F (&min)[2], const F (&step)[2], F (&out)[4]) {
    const __m512i words =
        _mm512_broadcast_i32x8(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    const F codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const F first = Fma(codes, step[0], min[0]);
    const F second = Fma(codes, step[1], min[1]);
    const __m512i begins = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
    const auto value = [&](int shift, F values) {
      const __m512i shifts = _mm512_add_epi32(begins, _mm512_set1_epi32(shift));
      return _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), values);
    };
    out[0] = value(0, first);
    out[1] = value(16, first);
    out[2] = value(8, second);
    out[3] = value(24, second);
  }
  // A group's 64 codes of 6 bits, in the same order.
  static void LoadSixes(const void* p, F (&out)[4]) {
    const auto* lows = static_cast<const __m256i*>(p);
    const __m128i halfs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lows + 1));
    const __m512i words = _mm512_broadcast_i32x8(_mm256_loadu_si256(lows));
    const __m512i highs = _mm512_broadcast_i32x8(_mm256_cvtepu16_epi32(halfs));
    const __m512i begins = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
    const auto code = [&](int shift) {
      const __m512i shifts = _mm512_add_epi32(begins, _mm512_set1_epi32(shift));
      const __m512i low = _mm512_and_si512(_mm512_srlv_epi32(words, shifts), _mm512_set1_epi32(15));
      const __m512i high =
          _mm512_slli_epi32(_mm512_srlv_epi32(highs, _mm512_srli_epi32(shifts, 1)), 4);
      const __m512i both = _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi32(48)));
      return _mm512_cvtepi32_ps(both);
    };
    out[0] = code(0);
    out[1] = code(16);
    out[2] = code(8);
    out[3] = code(24);
  }
  static F LoadSigned(const void* p) {  // bytes
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
  }
  // Lane `lane` in all of them; the first four.
  static F Lane(F v, int lane) { return _mm512_permutexvar_ps(_mm512_set1_epi32(lane), v); }
  // Numbers of E2M1, in the same order, the first 32 times `first`, the others times `second`.
  static void LookUpGroup(const void* p, F first, F second, F (&out)[4]) {
    const __m512i words =
        _mm512_broadcast_i32x8(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    const F numbers = _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F,
                                     -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F);
    const __m512i begins = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
    const auto value = [&](int shift, F values) {
      const __m512i shifts = _mm512_add_epi32(begins, _mm512_set1_epi32(shift));
      return _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), values);
    };
    const F of_first = Mul(numbers, first);
    const F of_second = Mul(numbers, second);
    out[0] = value(0, of_first);
    out[1] = value(16, of_first);
    out[2] = value(8, of_second);
    out[3] = value(24, of_second);
  }
  static F LoadHalf(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  struct Pair {
    F first;
    F second;
  };
  // Numbers of E4M3 over 256: their bits, moved, are those of such an fp16.
  static F LoadFp8(const void* p) {
    const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    const __m256i moved = _mm256_slli_epi16(codes, 7);  // the sign is in two bits
    return _mm512_cvtph_ps(_mm256_and_si256(moved, _mm256_set1_epi16(-0x4001)));
  }
  static Pair SetHalfs(const void* p) {  // two of them
    const __m128 both = _mm_cvtph_ps(_mm_loadu_si32(p));
    return {_mm512_broadcastss_ps(both), _mm512_broadcastss_ps(_mm_movehdup_ps(both))};
  }
  // Neighbours, 16 times: the first of each, and the second.
  static Pair LoadPairs(const float* p) {
    const F low = Load(p);
    const F high = Load(p + kLanes);
    const __m512i firsts =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i seconds = _mm512_add_epi32(firsts, _mm512_set1_epi32(1));
    return {_mm512_permutex2var_ps(low, firsts, high), _mm512_permutex2var_ps(low, seconds, high)};
  }
  static F LoadHalfPart(const uint16_t* p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(Mask(n), p));
  }
  static F LoadBf16(const uint16_t* p) {
    return Bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F LoadBf16Part(const uint16_t* p, int64_t n) {
    return Bf16(_mm256_maskz_loadu_epi16(Mask(n), p));
  }
  // Loads two registers, which lie side by side, at once.
  static Pair LoadHalfPair(const uint16_t* p) {
    const __m512i line = _mm512_loadu_si512(p);
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(line)),
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64(line, 1))};
  }
  static Pair LoadBf16Pair(const uint16_t* p) {
    const __m512i line = _mm512_loadu_si512(p);
    return {Bf16(_mm512_castsi512_si256(line)), Bf16(_mm512_extracti64x4_epi64(line, 1))};
  }
  static void StoreHalf(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToHalf(v));
  }
  static void StoreHalfPart(uint16_t* p, F v, int64_t n) {
    _mm256_mask_storeu_epi16(p, Mask(n), ToHalf(v));
  }
  static void StoreBf16(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBf16(v));
  }
  static void StoreBf16Part(uint16_t* p, F v, int64_t n) {
    _mm256_mask_storeu_epi16(p, Mask(n), ToBf16(v));
  }

  // The low 8 bits of whole numbers, and the low 16.
  static void StoreBytes(void* p, F whole) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(whole)));
  }
  static void StoreShorts(void* p, F whole) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(whole)));
  }
  // One fp16 number.
  static float OfHalf(uint16_t half) { return _cvtsh_ss(half); }
  static uint16_t HalfOf(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }  // b when either is NaN
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }  // b when either is NaN
  static F Round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F Abs(F a) { return _mm512_abs_ps(a); }
  // a * 2^exponent, exponent whole
  static F Scale(F a, F exponent) { return _mm512_scalef_ps(a, exponent); }
  static M Less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M Equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static M Both(M a, M b) { return a & b; }
  static uint32_t Bits(M mask) { return mask; }  // lane i is bit i
  static F Select(M mask, F yes, F no) { return _mm512_mask_blend_ps(mask, no, yes); }
  static F SelectLess(F a, F b, F yes, F no) { return Select(Less(a, b), yes, no); }
  static int CountIn(F v, float low, float end) {  // lanes in [low, end)
    const __mmask16 in =
        _mm512_cmp_ps_mask(v, Set(low), _CMP_GE_OQ) & _mm512_cmp_ps_mask(v, Set(end), _CMP_LT_OQ);
    return __builtin_popcount(in);
  }
  // Sums by the tree of SumEach: halves of 8, of 4, of 2, of 1.
  static float Sum(F v) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  // Lane i of the result is Sum(v[i]), bit for bit, at 2 shuffles a vector instead of 4.
  static F SumEach(const F (&v)[16]) { return SumEachBy<Add>(v); }
  // Lane i is the sum of the whole numbers of 32 bits in v[i], in such a number.
  static F SumEachInts(const F (&v)[16]) { return SumEachBy<AddInts>(v); }
  // The steps of SumEach: s[i] = Fold(v[i], v[i + 8]) has v[i]'s halves folded in its lower half,
  // v[i + 8]'s in the upper.
  template <F (*add)(F, F) = Add>
  static F Fold(F low, F high) {
    return add(_mm512_shuffle_f32x4(low, high, 0x44), _mm512_shuffle_f32x4(low, high, 0xEE));
  }
  template <F (*add)(F, F) = Add>
  static F SumFolded(const F (&s)[8]) {
    F t[4];  // 128-bit lanes: v[i], v[i + 4], v[i + 8], v[i + 12], each folded to 4
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = add(_mm512_shuffle_f32x4(s[i], s[i + 4], 0x88),
                 _mm512_shuffle_f32x4(s[i], s[i + 4], 0xDD));
    }
    // Lanes now 0: v[i] 1: v[i + 8] 2: v[i + 4] 3: v[i + 12]. Fold 4 to 2, then to 1, within each.
    const F a = add(_mm512_shuffle_ps(t[0], t[1], 0x44), _mm512_shuffle_ps(t[0], t[1], 0xEE));
    const F b = add(_mm512_shuffle_ps(t[2], t[3], 0x44), _mm512_shuffle_ps(t[2], t[3], 0xEE));
    const F sums = add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
    return _mm512_shuffle_f32x4(sums, sums, 0xD8);
  }
  // Turns registers of words: lane j of v[i] becomes lane i of v[j].
  static void Transpose(F (&v)[16]) {
    F t[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) Transpose4(v + i, t + i);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // of 128 bits: 4 x 4
      const F a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
      const F b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xDD);
      const F c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
      const F d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xDD);
      v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
      v[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
      v[i + 8] = _mm512_shuffle_f32x4(a, c, 0xDD);
      v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xDD);
    }
  }
  static float MinOf(F v) { return _mm512_reduce_min_ps(v); }
  static float MaxOf(F v) { return _mm512_reduce_max_ps(v); }

 private:
  static F AddInts(F a, F b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  template <F (*add)(F, F)>
  static F SumEachBy(const F (&v)[16]) {
    F s[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) s[i] = Fold<add>(v[i], v[i + 8]);
    return SumFolded<add>(s);
  }
  // 4 x 4 within 128 bits.
  static void Transpose4(const F* v, F* t) {
    const F a = _mm512_unpacklo_ps(v[0], v[1]);
    const F b = _mm512_unpackhi_ps(v[0], v[1]);
    const F c = _mm512_unpacklo_ps(v[2], v[3]);
    const F d = _mm512_unpackhi_ps(v[2], v[3]);
    t[0] = _mm512_shuffle_ps(a, c, 0x44);
    t[1] = _mm512_shuffle_ps(a, c, 0xEE);
    t[2] = _mm512_shuffle_ps(b, d, 0x44);
    t[3] = _mm512_shuffle_ps(b, d, 0xEE);
  }
  static F Bf16(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static __m256i ToHalf(F v) {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // Not vcvtneps2bf16: it flushes denormals, and not every AVX-512 machine has it.
  static __m256i ToBf16(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, _mm512_srli_epi32(up, 16), quiet));
  }
};

}  // namespace
}  // namespace spillway::kernels
