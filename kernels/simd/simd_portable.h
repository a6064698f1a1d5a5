// The 4-lane portable form of Simd; see simd.h, its only includer.
#pragma once

#include <cstdint>

namespace spillway::kernels {
namespace {

struct Simd {
  using F = float __attribute__((vector_size(16)));  // SSE2, NEON or whatever the compiler has
  using U = uint32_t __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using M = I;  // all bits of a lane, or none
  static constexpr int kLanes = 4;
  static constexpr int kNibbleShifts[8] = {0, 4, 16, 20, 8, 12, 24, 28};  // in order of k

  static F Zero() { return F{}; }
  static F Set(float value) { return F{value, value, value, value}; }
  static F Load(const float* p) {
    F v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  static F LoadPart(const float* p, int64_t n) {
    F v = Zero();
    for (int64_t i = 0; i < n; ++i) v[i] = p[i];
    return v;
  }
  static void Store(float* p, F v) { __builtin_memcpy(p, &v, sizeof(v)); }
  static void StorePart(float* p, F v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
  }

  // The lower half of the lanes from `low`, the upper from `high`.
  static F LoadHalves(const float* low, const float* high) {
    return F{low[0], low[1], high[0], high[1]};
  }

  // Lanes 2i and 2i + 1 change places.
  static F SwapNeighbours(F v) { return F{v[1], v[0], v[3], v[2]}; }

  static F FromInts(F bits) { return __builtin_convertvector(reinterpret_cast<I>(bits), F); }
  static F LoadBytes(const void* p) {
    const uint8_t* bytes = static_cast<const uint8_t*>(p);
    F v = Zero();
    for (int i = 0; i < kLanes; ++i) v[i] = bytes[i];
    return v;
  }
  static F LoadNibbles(const void* p) {  // two in a byte, the lower first
    const uint8_t* bytes = static_cast<const uint8_t*>(p);
    F v = Zero();
    for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>((bytes[i / 2] >> i % 2 * 4) & 15);
    return v;
  }
  // min + scale * code of 64 codes of 4 bits: nibble j of word i goes to lane i of out's four j.
  static void Dequantise(const void* p, F min, F scale, F (&out)[16]) {
    const uint8_t* bytes = static_cast<const uint8_t*>(p);
    for (int v = 0; v < 16; ++v) {
      F codes = Zero();
      for (int i = 0; i < kLanes; ++i) {
        const int word = (v * kLanes + i) % 16;
        codes[i] = static_cast<float>((bytes[word * 2 + v / 8] >> v / 4 % 2 * 4) & 15);
      }
      out[v] = Fma(scale, codes, min);
    }
  }
  // min + step * code of a group's 64 codes of 4 bits, in order of k (quantise.h), with a minimum
  // and a step for each half of them: eight of each nibble of the eight words.
  static void DequantiseGroup(const void* p, const F (&min)[2], const F (&step)[2], F (&out)[16]) {
    U words[2];
    __builtin_memcpy(words, p, sizeof(words));
    for (int v = 0; v < 16; ++v) {
      const U codes = (words[v % 2] >> kNibbleShifts[v / 2]) & 15U;
      out[v] = Fma(__builtin_convertvector(codes, F), step[v / 8], min[v / 8]);
    }
  }
  // A group's 64 codes of 6 bits, in the same order.
  static void LoadSixes(const void* p, F (&out)[16]) {
    const auto* bytes = static_cast<const unsigned char*>(p);
    U words[2];
    __builtin_memcpy(words, bytes, sizeof(words));
    const auto* halfs = reinterpret_cast<const uint16_t*>(bytes + sizeof(words));
    const U highs[2] = {Wide(halfs, kLanes), Wide(halfs + kLanes, kLanes)};
    for (int v = 0; v < 16; ++v) {
      const int shift = kNibbleShifts[v / 2];
      const U low = (words[v % 2] >> shift) & 15U;
      const U high = (highs[v % 2] >> (shift / 2)) & 3U;
      out[v] = __builtin_convertvector(low | (high << 4), F);
    }
  }
  static F LoadSigned(const void* p) {  // bytes
    const auto* bytes = static_cast<const int8_t*>(p);
    F v = Zero();
    for (int i = 0; i < kLanes; ++i) v[i] = bytes[i];
    return v;
  }
  // Lane `lane` in all of them; the first four.
  static F Lane(F v, int lane) { return Set(v[lane]); }
  // Numbers of E2M1, in the same order, the first 32 times `first`, the others times `second`.
  static void LookUpGroup(const void* p, F first, F second, F (&out)[16]) {
    U words[2];
    __builtin_memcpy(words, p, sizeof(words));
    const F halves[2] = {Mul(Set(0.5F), first), Mul(Set(0.5F), second)};
    for (int v = 0; v < 16; ++v) {
      const U codes = words[v % 2] >> kNibbleShifts[v / 2];
      const U exponent = (codes >> 1) & 3U;
      const U subnormal = codes & 1U;  // twice the number, as all that follows
      const U normal = (subnormal | 2U) << ((exponent + 3U) & 3U);
      const U is_normal = reinterpret_cast<U>(exponent > 0U);
      const U doubles = (normal & is_normal) | (subnormal & ~is_normal);
      const F magnitude = Mul(__builtin_convertvector(doubles, F), halves[v / 8]);
      out[v] = AsFloat(reinterpret_cast<U>(magnitude) ^ ((codes & 8U) << 28));
    }
  }
  static F LoadHalf(const uint16_t* p) { return FromHalf(Wide(p, kLanes)); }
  struct Pair {
    F first;
    F second;
  };
  // Numbers of E4M3 over 256: their bits, moved, are those of such an fp16.
  static F LoadFp8(const void* p) {
    const uint8_t* bytes = static_cast<const uint8_t*>(p);
    U halfs = {};
    for (int i = 0; i < kLanes; ++i) halfs[i] = (bytes[i] & 0x80U) << 8 | (bytes[i] & 0x7FU) << 7;
    return FromHalf(halfs);
  }
  static Pair SetHalfs(const void* p) {  // two of them
    uint16_t halfs[2];
    __builtin_memcpy(halfs, p, sizeof(halfs));
    const F both = LoadHalfPart(halfs, 2);
    return {Set(both[0]), Set(both[1])};
  }
  // Neighbours, 4 times: the first of each, and the second.
  static Pair LoadPairs(const float* p) {
    return {F{p[0], p[2], p[4], p[6]}, F{p[1], p[3], p[5], p[7]}};
  }
  static F LoadHalfPart(const uint16_t* p, int64_t n) { return FromHalf(Wide(p, n)); }
  static F LoadBf16(const uint16_t* p) { return AsFloat(Wide(p, kLanes) << 16); }
  static F LoadBf16Part(const uint16_t* p, int64_t n) { return AsFloat(Wide(p, n) << 16); }
  static Pair LoadHalfPair(const uint16_t* p) { return {LoadHalf(p), LoadHalf(p + kLanes)}; }
  static Pair LoadBf16Pair(const uint16_t* p) { return {LoadBf16(p), LoadBf16(p + kLanes)}; }
  static void StoreHalf(uint16_t* p, F v) { Narrow(p, ToHalf(v), kLanes); }
  static void StoreHalfPart(uint16_t* p, F v, int64_t n) { Narrow(p, ToHalf(v), n); }
  static void StoreBf16(uint16_t* p, F v) { Narrow(p, ToBf16(v), kLanes); }
  static void StoreBf16Part(uint16_t* p, F v, int64_t n) { Narrow(p, ToBf16(v), n); }

  // The low 8 bits of whole numbers, and the low 16.
  static void StoreBytes(void* p, F whole) {
    uint8_t bytes[kLanes];
    for (int i = 0; i < kLanes; ++i)
      bytes[i] = static_cast<uint8_t>(static_cast<int32_t>(whole[i]));
    __builtin_memcpy(p, bytes, sizeof(bytes));
  }
  static void StoreShorts(void* p, F whole) {
    uint16_t shorts[kLanes];
    for (int i = 0; i < kLanes; ++i)
      shorts[i] = static_cast<uint16_t>(static_cast<int32_t>(whole[i]));
    __builtin_memcpy(p, shorts, sizeof(shorts));
  }
  // One fp16 number.
  static float OfHalf(uint16_t half) { return FromHalf(U{half, 0, 0, 0})[0]; }
  static uint16_t HalfOf(float value) { return static_cast<uint16_t>(ToHalf(Set(value))[0]); }

  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  static F Fma(F a, F b, F c) {
    return a * b + c;
  }  // two roundings; -ffp-contract=off keeps it so everywhere
  static F Max(F a, F b) { return Select(a > b, a, b); }  // b when either is NaN
  static F Min(F a, F b) { return Select(a < b, a, b); }  // b when either is NaN
  static F Round(F a) {                                   // |a| < 2^22
    const F magic = Set(12582912.0F);
    return (a + magic) - magic;
  }
  static F Abs(F a) { return AsFloat(AsBits(a) & 0x7FFFFFFFU); }
  static F Scale(F a, F exponent) {
    const I biased = __builtin_convertvector(exponent, I) + 127;
    return a * AsFloat(reinterpret_cast<U>(biased) << 23);
  }
  static M Less(F a, F b) { return a < b; }
  static M Equal(F a, F b) { return a == b; }
  static M Both(M a, M b) { return a & b; }
  static uint32_t Bits(M mask) {  // lane i is bit i
    return static_cast<uint32_t>((mask[0] & 1) | (mask[1] & 2) | (mask[2] & 4) | (mask[3] & 8));
  }
  static F Select(M mask, F yes, F no) {
    return reinterpret_cast<F>((mask & reinterpret_cast<I>(yes)) |
                               (~mask & reinterpret_cast<I>(no)));
  }
  static F SelectLess(F a, F b, F yes, F no) { return Select(a < b, yes, no); }
  static int CountIn(F v, float low, float end) {
    const I in = (v >= Set(low)) & (v < Set(end));
    return -(in[0] + in[1] + in[2] + in[3]);
  }
  static float Sum(F v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  static F SumEach(const F (&v)[4]) { return F{Sum(v[0]), Sum(v[1]), Sum(v[2]), Sum(v[3])}; }
  // Lane i is the sum of the whole numbers of 32 bits in v[i], in such a number.
  static F SumEachInts(const F (&v)[4]) {
    I sums = {};
    for (int i = 0; i < 4; ++i) {
      const I of = reinterpret_cast<I>(v[i]);
      sums[i] = of[0] + of[1] + of[2] + of[3];
    }
    return reinterpret_cast<F>(sums);
  }
  // The steps of SumEach: s[i] = Fold(v[i], v[i + 2]) has v[i] folded in its lower half, v[i + 2]
  // in the upper.
  static F Fold(F low, F high) {
    return F{low[0] + low[2], low[1] + low[3], high[0] + high[2], high[1] + high[3]};
  }
  static F SumFolded(const F (&s)[2]) {
    return F{s[0][0] + s[0][1], s[1][0] + s[1][1], s[0][2] + s[0][3], s[1][2] + s[1][3]};
  }
  static float MinOf(F v) { return -MaxOf(Sub(Zero(), v)); }
  static float MaxOf(F v) {
    const float a = v[0] > v[2] ? v[0] : v[2];
    const float b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
  }

 private:
  static U AsBits(F v) { return reinterpret_cast<U>(v); }
  static F AsFloat(U v) { return reinterpret_cast<F>(v); }
  static U SelectBits(I mask, U yes, U no) {
    const U bits = reinterpret_cast<U>(mask);
    return (bits & yes) | (~bits & no);
  }
  static U Wide(const uint16_t* p, int64_t n) {
    U v = {};
    for (int64_t i = 0; i < n; ++i) v[i] = p[i];
    return v;
  }
  static void Narrow(uint16_t* p, U v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = static_cast<uint16_t>(v[i]);
  }
  // The exponent is rebiased by a multiplication, which also normalises denormals.
  static F FromHalf(U half) {
    const U magnitude = (half & 0x7FFFU) << 13;
    const U finite = AsBits(AsFloat(magnitude) * Set(0x1p112F));
    const U special =
        magnitude | 0x7F800000U | SelectBits(magnitude > 0x0F800000U, U{} + 0x400000U, U{});
    return AsFloat(SelectBits(magnitude >= 0x0F800000U, special, finite) |
                   ((half & 0x8000U) << 16));
  }
  static U ToHalf(F v) {
    const U bits = AsBits(v);
    const U magnitude = bits & 0x7FFFFFFFU;
    // Below 2^-14 the fp32 adder rounds at the last place of a half denormal: 0.5 has ulp 2^-24.
    const U tiny = AsBits(AsFloat(magnitude) + Set(0.5F)) - 0x3F000000U;
    const U normal = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
    const U nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
    U half = SelectBits(magnitude < 0x38800000U, tiny, normal);
    half = SelectBits(magnitude >= 0x477FF000U, U{} + 0x7C00U, half);  // 65520 and up
    half = SelectBits(magnitude > 0x7F800000U, nan, half);
    return half | ((bits >> 16) & 0x8000U);
  }
  static U ToBf16(F v) {
    const U bits = AsBits(v);
    const U up = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    return SelectBits((bits & 0x7FFFFFFFU) > 0x7F800000U, (bits >> 16) | 0x40U, up);
  }
};

}  // namespace
}  // namespace spillway::kernels
