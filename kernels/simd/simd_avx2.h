// The 8-lane AVX2, FMA and F16C form of Simd; see simd.h, its only includer.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace spillway::kernels {
namespace {

struct Simd {
  using F = __m256;
  using M = __m256;  // all bits of a lane, or none
  static constexpr int kLanes = 8;

  static __m256i Bits(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float value) { return _mm256_set1_ps(value); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static F LoadPart(const float* p, int64_t n) { return _mm256_maskload_ps(p, Bits(n)); }
  static void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
  // A masked store is some forty micro-operations on Zen 3: only where it is needed.
  static void StorePart(float* p, F v, int64_t n) {
    n >= kLanes ? Store(p, v) : _mm256_maskstore_ps(p, Bits(n), v);
  }

  // The lower half of the lanes from `low`, the upper from `high`.
  static F LoadHalves(const float* low, const float* high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
  }

  static F SwapNeighbours(F v) { return _mm256_permute_ps(v, 0xB1); }

  static F FromInts(F bits) { return _mm256_cvtepi32_ps(_mm256_castps_si256(bits)); }
  static F LoadBytes(const void* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  }
  static F LoadNibbles(const void* p) {  // two in a byte, the lower first
    const __m256i bytes = _mm256_cvtepu8_epi64(_mm_loadu_si32(p));
    const __m256i nibbles = _mm256_or_si256(bytes, _mm256_slli_epi64(bytes, 28));
    return _mm256_cvtepi32_ps(_mm256_and_si256(nibbles, _mm256_set1_epi32(15)));
  }
  // min + scale * code of 64 codes of 4 bits: nibble j of word i goes to lane i of out's pair j.
  static void Dequantise(const void* p, F min, F scale, F (&out)[8]) {
    const __m128i* words = static_cast<const __m128i*>(p);
    const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(words));
    const __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(words + 1));
    const auto value = [&](__m256i shifted) {
      const __m256i code = _mm256_and_si256(shifted, _mm256_set1_epi32(15));
      return Fma(scale, _mm256_cvtepi32_ps(code), min);
    };
    out[0] = value(low);
    out[1] = value(high);
    out[2] = value(_mm256_srli_epi32(low, 4));
    out[3] = value(_mm256_srli_epi32(high, 4));
    out[4] = value(_mm256_srli_epi32(low, 8));
    out[5] = value(_mm256_srli_epi32(high, 8));
    out[6] = value(_mm256_srli_epi32(low, 12));
    out[7] = value(_mm256_srli_epi32(high, 12));
  }
  // min + step * code of a group's 64 codes of 4 bits, in order of k (quantise.h), with a minimum
  // and a step for each half of them: eight of each nibble of the eight words.
  static void DequantiseGroup(const void* p, const F (&min)[2], const F (&step)[2], F (&out)[8]) {
    const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    const auto value = [&](__m256i shifted, int half) {
      const __m256i code = _mm256_and_si256(shifted, _mm256_set1_epi32(15));
      return Fma(_mm256_cvtepi32_ps(code), step[half], min[half]);
    };
    out[0] = value(words, 0);
    out[1] = value(_mm256_srli_epi32(words, 4), 0);
    out[2] = value(_mm256_srli_epi32(words, 16), 0);
    out[3] = value(_mm256_srli_epi32(words, 20), 0);
    out[4] = value(_mm256_srli_epi32(words, 8), 1);
    out[5] = value(_mm256_srli_epi32(words, 12), 1);
    out[6] = value(_mm256_srli_epi32(words, 24), 1);
    out[7] = value(_mm256_srli_epi32(words, 28), 1);
  }
  // A group's 64 codes of 6 bits, in the same order.
  static void LoadSixes(const void* p, F (&out)[8]) {
    const auto* lows = static_cast<const __m256i*>(p);
    const __m128i halfs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lows + 1));
    const __m256i words = _mm256_loadu_si256(lows);
    const __m256i highs = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halfs), 4);
    const auto code = [&](int shift) {
      const __m256i low = _mm256_and_si256(_mm256_srli_epi32(words, shift), _mm256_set1_epi32(15));
      const __m256i high =
          _mm256_and_si256(_mm256_srli_epi32(highs, shift / 2), _mm256_set1_epi32(48));
      return _mm256_cvtepi32_ps(_mm256_or_si256(low, high));
    };
    out[0] = code(0);
    out[1] = code(4);
    out[2] = code(16);
    out[3] = code(20);
    out[4] = code(8);
    out[5] = code(12);
    out[6] = code(24);
    out[7] = code(28);
  }
  static F LoadSigned(const void* p) {  // bytes
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  }
  // Lane `lane` in all of them; the first four.
  static F Lane(F v, int lane) { return _mm256_permutevar8x32_ps(v, _mm256_set1_epi32(lane)); }
  // Numbers of E2M1, in the same order, the first 32 times `first`, the others times `second`.
  static void LookUpGroup(const void* p, F first, F second, F (&out)[8]) {
    const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    const F numbers = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
    const F of_first = Mul(numbers, first);
    const F of_second = Mul(numbers, second);
    const auto value = [&](__m256i shifted, F values) {  // three bits choose, the fourth is a sign
      const __m256i sign =
          _mm256_and_si256(_mm256_slli_epi32(shifted, 28), _mm256_set1_epi32(INT32_MIN));
      return _mm256_xor_ps(_mm256_permutevar8x32_ps(values, shifted), _mm256_castsi256_ps(sign));
    };
    out[0] = value(words, of_first);
    out[1] = value(_mm256_srli_epi32(words, 4), of_first);
    out[2] = value(_mm256_srli_epi32(words, 16), of_first);
    out[3] = value(_mm256_srli_epi32(words, 20), of_first);
    out[4] = value(_mm256_srli_epi32(words, 8), of_second);
    out[5] = value(_mm256_srli_epi32(words, 12), of_second);
    out[6] = value(_mm256_srli_epi32(words, 24), of_second);
    out[7] = value(_mm256_srli_epi32(words, 28), of_second);
  }
  static F LoadHalf(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  struct Pair {
    F first;
    F second;
  };
  // Numbers of E4M3 over 256: their bits, moved, are those of such an fp16.
  static F LoadFp8(const void* p) {
    const __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
    const __m128i moved = _mm_slli_epi16(codes, 7);  // the sign is in two bits
    return _mm256_cvtph_ps(_mm_and_si128(moved, _mm_set1_epi16(-0x4001)));
  }
  static Pair SetHalfs(const void* p) {  // two of them
    const __m128 both = _mm_cvtph_ps(_mm_loadu_si32(p));
    return {_mm256_broadcastss_ps(both), _mm256_broadcastss_ps(_mm_movehdup_ps(both))};
  }
  // Neighbours, 8 times: the first of each, and the second.
  static Pair LoadPairs(const float* p) {
    const F low = Load(p);
    const F high = Load(p + kLanes);
    return {InOrder(_mm256_shuffle_ps(low, high, 0x88)),
            InOrder(_mm256_shuffle_ps(low, high, 0xDD))};
  }
  static F LoadHalfPart(const uint16_t* p, int64_t n) { return _mm256_cvtph_ps(Part(p, n)); }
  static F LoadBf16(const uint16_t* p) {
    return Bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F LoadBf16Part(const uint16_t* p, int64_t n) { return Bf16(Part(p, n)); }
  static Pair LoadHalfPair(const uint16_t* p) { return {LoadHalf(p), LoadHalf(p + kLanes)}; }
  static Pair LoadBf16Pair(const uint16_t* p) { return {LoadBf16(p), LoadBf16(p + kLanes)}; }
  static void StoreHalf(uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToHalf(v));
  }
  static void StoreHalfPart(uint16_t* p, F v, int64_t n) { StorePart16(p, ToHalf(v), n); }
  static void StoreBf16(uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToBf16(v));
  }
  static void StoreBf16Part(uint16_t* p, F v, int64_t n) { StorePart16(p, ToBf16(v), n); }

  // The low 8 bits of whole numbers, and the low 16.
  static void StoreBytes(void* p, F whole) {
    const __m256i low = _mm256_and_si256(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(255));
    const __m128i shorts = PackShorts(low);
    _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packus_epi16(shorts, shorts));
  }
  static void StoreShorts(void* p, F whole) {
    const __m256i low = _mm256_and_si256(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(0xFFFF));
    _mm_storeu_si128(static_cast<__m128i*>(p), PackShorts(low));
  }
  // One fp16 number.
  static float OfHalf(uint16_t half) { return _cvtsh_ss(half); }
  static uint16_t HalfOf(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }  // b when either is NaN
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }  // b when either is NaN
  static F Round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F Abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
  static F Scale(F a, F exponent) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127));
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)));
  }
  static M Less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M Equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static M Both(M a, M b) { return _mm256_and_ps(a, b); }
  static uint32_t Bits(M mask) { return static_cast<uint32_t>(_mm256_movemask_ps(mask)); }
  static F Select(M mask, F yes, F no) { return _mm256_blendv_ps(no, yes, mask); }
  static F SelectLess(F a, F b, F yes, F no) { return Select(Less(a, b), yes, no); }
  static int CountIn(F v, float low, float end) {
    const F in = _mm256_and_ps(_mm256_cmp_ps(v, Set(low), _CMP_GE_OQ),
                               _mm256_cmp_ps(v, Set(end), _CMP_LT_OQ));
    return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(in)));
  }
  static float Sum(F v) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static F SumEach(const F (&v)[8]) { return SumEachBy<Add>(v); }
  // Lane i is the sum of the whole numbers of 32 bits in v[i], in such a number.
  static F SumEachInts(const F (&v)[8]) { return SumEachBy<AddInts>(v); }
  // The steps of SumEach: s[i] = Fold(v[i], v[i + 4]) has v[i] folded in its lower half, v[i + 4]
  // in the upper.
  template <F (*add)(F, F) = Add>
  static F Fold(F low, F high) {
    return add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
  }
  template <F (*add)(F, F) = Add>
  static F SumFolded(const F (&s)[4]) {
    const F a = add(_mm256_shuffle_ps(s[0], s[1], 0x44), _mm256_shuffle_ps(s[0], s[1], 0xEE));
    const F b = add(_mm256_shuffle_ps(s[2], s[3], 0x44), _mm256_shuffle_ps(s[2], s[3], 0xEE));
    return add(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
  }
  // Turns registers of words: lane j of v[i] becomes lane i of v[j].
  static void Transpose(F (&v)[8]) {
    F t[8];
    Transpose4(v, t);
    Transpose4(v + 4, t + 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // of 128 bits: 2 x 2
      v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
      v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
  }
  static float MinOf(F v) { return -MaxOf(Sub(Zero(), v)); }
  static float MaxOf(F v) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

 private:
  static F AddInts(F a, F b) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  template <F (*add)(F, F)>
  static F SumEachBy(const F (&v)[8]) {
    F s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) s[i] = Fold<add>(v[i], v[i + 4]);
    return SumFolded<add>(s);
  }
  // 4 x 4 within 128 bits.
  static void Transpose4(const F* v, F* t) {
    const F a = _mm256_unpacklo_ps(v[0], v[1]);
    const F b = _mm256_unpackhi_ps(v[0], v[1]);
    const F c = _mm256_unpacklo_ps(v[2], v[3]);
    const F d = _mm256_unpackhi_ps(v[2], v[3]);
    t[0] = _mm256_shuffle_ps(a, c, 0x44);
    t[1] = _mm256_shuffle_ps(a, c, 0xEE);
    t[2] = _mm256_shuffle_ps(b, d, 0x44);
    t[3] = _mm256_shuffle_ps(b, d, 0xEE);
  }
  // Quarters of 64 bits in the order 0, 2, 1, 3.
  static F InOrder(F v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8));
  }
  static __m128i Part(const uint16_t* p, int64_t n) {
    uint16_t lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes));
  }
  static void StorePart16(uint16_t* p, __m128i bits, int64_t n) {
    uint16_t lanes[kLanes];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), bits);
    for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
  static F Bf16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // Words below 65536, to 16 bits each.
  static __m128i PackShorts(__m256i words) {
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  static __m128i ToHalf(F v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
  static __m128i ToBf16(F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  }
};

}  // namespace
}  // namespace spillway::kernels
