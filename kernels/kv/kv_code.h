// Storage of K and V below 16 bits: min, scale and codes of each group of up to 64 elements along
// head_dim. With steps = 2^bits - 1:
//   min   = the largest fp16 value that is not above the group's lowest element,
//   scale = the smallest fp16 value that is not below (highest - min) / steps, divided in fp32,
//   code  = (x - min) / scale in fp32, rounded to nearest even, clamped to [0, steps]; 0 where
//           scale is 0.
// The stored min is then moved by the mean error of the elements, to the nearest fp16, if it moves
// by half a step at most. A query's elements have a mean of their own, often a large one; times it,
// 64 errors of one sign would add up.
// An element reads as fma(scale, code, min) in fp32: one rounding where the instruction set has an
// FMA, two in the portable form. Rounding outwards, min and scale cover the group, so that an
// element is off by at most scale / 2, as much again where min has moved, and the fp32 rounding;
// KvErrorBound says how much that is. A group of one fp16 value is exact: its scale is 0. So are
// fp16 denormals that lie within `steps` of each other.
// Elements round to fp16's range as the 16-bit cache has it: from 65504 to 65520 in size they are
// 65504. A group with a NaN, or with an element from 65520, has a min of NaN and reads as NaN, so
// that its row fails by name.
// The CPU multiplies codes of keys with queries in whole numbers: an element of a query, times the
// scale of attention, is scale * number there, the scale of each group of up to 64 elements being
// their largest size over kKvQueryMost, and the number the nearest to element / scale, by a factor
// in fp32. Sums of codes times numbers are exact, so that their order changes no bit. Keys that are
// turned as they are read are met by the queries as they are.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/kv_block.h"

namespace spillway::kernels {

// Place of an element's code among its token's codes: 8 bits, or 4 bits from bit `shift`. At 4 bits
// the codes of a whole group are 16 words of 4, nibble j of word i being element 16 j + i: a
// register of 16 words, shifted by 0, 4, 8 and 12, then has 64 elements in their order. In a
// shorter group a byte has two neighbours, the first in its lower half. Bytes are little endian;
// padding is 0.
struct KvCodePlace {
  int64_t byte = 0;
  int shift = 0;
};

constexpr KvCodePlace KvCodeAt(int64_t element, int64_t head_dim, int bits) {
  if (bits == 8) return {element, 0};
  const int64_t begin = element / kKvGroup * kKvGroup;
  const int64_t index = element - begin;
  if (begin + kKvGroup > head_dim) {
    return {begin / 2 + index / 2, static_cast<int>(index % 2 * 4)};
  }
  const int64_t nibble = index / 16;
  return {begin / 2 + index % 16 * 2 + nibble / 2, static_cast<int>(nibble % 2 * 4)};
}

// Largest number of a query's element: of its two bytes both have a sign.
constexpr float kKvQueryMost = 127.0F * 256.0F + 127.0F;
// Size from which a group's elements are not taken as 0: the factor is finite.
constexpr float kKvQueryLeast = 1e-30F;

// Bytes that the 64 numbers of a query's group take where it meets keys of codes
// (code_query_simd.h), and floats that a query takes there: its groups' numbers, and two scales of
// each.
constexpr int64_t kKvQueryGroupBytes = 128;
constexpr int64_t KvQueryFloats(int64_t head_dim) {
  return (KvGroups(head_dim) * (kKvQueryGroupBytes / 4 + 2) + 15) / 16 * 16;
}

constexpr int KvSteps(int bits) { return (1 << bits) - 1; }

// Range of a group as it is stored, in fp16.
struct KvRange {
  uint16_t min = 0;
  uint16_t scale = 0;
};

// Range of a group whose elements lie in [lowest, highest]; a NaN in one of them gives a range that
// makes the group read as NaN. The same bits for every instruction set.
KvRange KvRangeOf(float lowest, float highest, int bits);

// Sum of a group's elements, in one fixed order.
float KvSum(const float* x, int64_t size);

// The min to store for a group of `size` elements, from the sums of its elements and of its codes.
// Requires: range.scale is not 0.
uint16_t KvMovedMin(const KvRange& range, float sum, int64_t sum_of_codes, int64_t size);

// Largest error of an element of a group within [lowest, highest].
float KvErrorBound(float lowest, float highest, int bits);

// The oracle: one token's K, or V, of one head. `ranges`: of its first group, the others
// kKvRangeStride apart.
void EncodeKvRef(const float* x, int64_t head_dim, int bits, std::byte* codes, std::byte* ranges);
float DecodeKvRef(const std::byte* codes, const std::byte* ranges, int64_t element,
                  int64_t head_dim, int bits);

}  // namespace spillway::kernels
