// Matrix rows in groups of 64 weights along the row, 8 or 4 bits each: the quantised types of
// dtype.h. A group of kQ8 or kQ4 is its minimum and its step, both fp16, and 64 codes; the last one
// of a row may stand for fewer weights, its other codes are 0. A weight is minimum + code * step,
// one FMA in fp32 (its product is exact): the same bits wherever it is computed, except in the
// GPU's products, which round it to fp16 (matmul_packed.h). Codes of 8 bits lie in order. Codes of
// 4 bits are eight little-endian words, weight k in word k % 8; the order within a word is that in
// which the AMX kernel, which multiplies four bytes of a word at a time, packs x without a shuffle:
// byte b of the words of low and then of high halves is weight 16 {0, 2, 1, 3}[b] + word. A group
// of kMxfp4 has two scales in the place of minimum and step, for its first and its last 32 weights,
// and its codes, in the order of kQ4, are numbers of one sign, two exponent and one mantissa bit
// (E2M1): a weight is its number times the scale, exact in fp32 and fp16. Scales are powers of two
// from 2^-24 to 2^15, or 0, where the OCP format (Microscaling Formats v1.0) has eight bits for
// them; weights that lie within fp16 need no others. A group of kInt8 or kInt4 has a word in that
// place: a scale, the upper 24 bits of an fp32, which hold any of fp16 and of bf16, and a zero
// point of 8 bits below; its codes are those of kQ8 and kQ4, and a weight is (code - zero) * scale,
// exact in fp32. A group of kFp8 has an fp32 scale and 64 numbers in order, of one sign, four
// exponent and three mantissa bits (E4M3 without infinities); a weight is number * scale, rounded
// to fp32 once.
// The types of GGUF files keep ggml's numbers in this order of codes. A group of kGgufQ8 or kGgufQ4
// has two fp16 scales as kMxfp4 does; a weight is (code - 128) or (code - 8) times its scale, exact
// in fp32. A head of kGgufM4 goes on with two minimums, fp16 too, which are added to code * scale.
// A head of kGgufK4 or kGgufK6 has a factor for scales and one for minimums, both fp16, then the
// scales of the group's 32s or 16s in turn, a signed byte each, then as many minimums; a weight is
// factor * scale * code - factor * minimum, whose products are exact in fp32, so that it is rounded
// once. Codes of 6 bits are words of their lower 4 as above, then eight half-words: bits [2 i, 2 i
// + 2) of half-word j are the upper two of what is nibble i of word j. Thread rule: pure functions;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/dtype.h"

namespace spillway::kernels {

// Of all but numbers.
constexpr int64_t MaxCode(DType dtype) { return (int64_t{1} << CodeBits(dtype)) - 1; }

// Zero point of a group of kInt8 or kInt4 in its head; the other bits are its scale's.
inline constexpr uint32_t kZeroMask = 0xFF;

// True of integers from a zero point.
constexpr bool HasZeroPoint(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kInt4; }

// True of types with a scale for each half of a group and codes that are counted from the middle.
constexpr bool HasTwoScales(DType dtype) {
  return dtype == DType::kGgufQ8 || dtype == DType::kGgufQ4;
}

// The code of such a type that stands for 0.
constexpr int64_t MiddleCode(DType dtype) { return (MaxCode(dtype) + 1) / 2; }

// True of the type with a scale and a minimum for each half of a group.
constexpr bool HasTwoMinimums(DType dtype) { return dtype == DType::kGgufM4; }

// Where these begin in its head.
inline constexpr int64_t kMinimumsAt = 4;

// True of types whose scales and minimums are codes themselves.
constexpr bool HasCodedScales(DType dtype) {
  return dtype == DType::kGgufK4 || dtype == DType::kGgufK6;
}

// Scales, and as many minimums, of a group of such a type; where they begin in its head.
constexpr int64_t NumCodedScales(DType dtype) { return dtype == DType::kGgufK4 ? 2 : 4; }
inline constexpr int64_t kCodedScalesAt = 4;

// Equal parts of a group with steps of their own.
constexpr int64_t PartsOfGroup(DType dtype) {
  if (HasCodedScales(dtype)) return NumCodedScales(dtype);
  const bool has_two = dtype == DType::kMxfp4 || HasTwoScales(dtype) || HasTwoMinimums(dtype);
  return has_two ? 2 : 1;
}

// Calls `use`, a lambda with a DType for template parameter, with a quantised type. Requires: one.
template <typename Use>
void WithQuantised(DType dtype, Use use) {
  switch (dtype) {
    case DType::kQ8:
      return use.template operator()<DType::kQ8>();
    case DType::kQ4:
      return use.template operator()<DType::kQ4>();
    case DType::kMxfp4:
      return use.template operator()<DType::kMxfp4>();
    case DType::kInt8:
      return use.template operator()<DType::kInt8>();
    case DType::kInt4:
      return use.template operator()<DType::kInt4>();
    case DType::kFp8:
      return use.template operator()<DType::kFp8>();
    case DType::kGgufQ8:
      return use.template operator()<DType::kGgufQ8>();
    case DType::kGgufQ4:
      return use.template operator()<DType::kGgufQ4>();
    case DType::kGgufM4:
      return use.template operator()<DType::kGgufM4>();
    case DType::kGgufK4:
      return use.template operator()<DType::kGgufK4>();
    case DType::kGgufK6:
      return use.template operator()<DType::kGgufK6>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
}

// The same with a type whose groups have several steps. Requires: one.
template <typename Use>
void WithParts(DType dtype, Use use) {
  WithQuantised(dtype, [&]<DType kType>() {
    if constexpr (PartsOfGroup(kType) > 1) use.template operator()<kType>();
  });
}

// Code of kFp8 that stands for no number, but for its sign; and the largest number.
inline constexpr unsigned kFp8NaN = 127;
inline constexpr float kFp8Largest = 448.0F;

// Weights of a kMxfp4 group that share a scale.
inline constexpr int64_t kScaledWeights = 32;

// The least scale of kMxfp4 is 2 to this power.
inline constexpr int kLeastScaleExponent = -24;

// Numbers of E2M1, times 2.
inline constexpr int kFp4Doubles[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Bits [4 i, 4 i + 4) of word j are the code of weight kNibbleBegin[i] + j of the group.
inline constexpr int64_t kNibbleBegin[8] = {0, 8, 32, 40, 16, 24, 48, 56};

// Requires: finite halfs; row.size() == RowBytes(dtype, halfs.size()).
// With range = max - min of a group the step is range / MaxCode rounded up to an fp16, so nothing
// divides by zero or overflows, and a weight comes back within 0.501 steps. Groups of one value,
// and those whose range is MaxCode times 2^-24 or less, come back exactly (-0 as 0).
// To kMxfp4 a weight becomes the nearest number, of two as near the one with an even code, under
// the least scale that takes the largest of its 32 weights to 6 at most, or rounds it there; what
// is such numbers under any one scale comes back exactly. To kInt8 and kInt4 it becomes the nearest
// of steps that include 0, to kFp8 the nearest number under a scale that takes the largest to 448,
// to the types of GGUF files the nearest step of scales that reach their largest weight, or one
// off.
void QuantiseRow(std::span<const uint16_t> halfs, DType dtype, std::span<std::byte> row);

// Decodes a row's weights to fp32. Requires: row holds RowBytes(dtype, floats.size()).
void DequantiseRow(const std::byte* row, DType dtype, std::span<float> floats);

// The first group of `rows` whose minimum, step, scale or number is NaN or infinity, -1 when none
// is. Requires: whole groups.
int64_t FindNonFiniteGroup(std::span<const std::byte> rows, DType dtype);

// Writes a group: its head as it is stored, and the code of each weight. Requires:
// head.size() == GroupHeadBytes(dtype); 64 codes of CodeBits(dtype) bits; group.size() ==
// GroupBytes(dtype).
void PackGroup(std::span<const std::byte> head, std::span<const uint8_t> codes, DType dtype,
               std::span<std::byte> group);

// The number that a code of kFp8 is; of one that stands for none the next after the largest.
float Fp8Number(uint8_t code);

// The oracle: weight k of a row, from its definition.
float DequantiseRef(const std::byte* row, DType dtype, int64_t k);

}  // namespace spillway::kernels
