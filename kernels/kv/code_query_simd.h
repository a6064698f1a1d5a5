// Queries times keys of codes, in whole numbers, as kernels/kv/kv_code.h defines them: added up
// exactly, so by any instruction and in any order with the same sum. Compiled once per instruction
// set.
#pragma once

#include "kernels/kv/code_products_simd.h"
#include "kernels/kv/kv_code_simd.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// A query's numbers, [group], then [group][scale, scale times the numbers' sum]. Of KvQueryFloats.
struct CodeQuery {
  float* data;
  int64_t num_groups;

  float* Numbers(int64_t group) const { return data + group * (kKvQueryGroupBytes / 4); }
  float* Scales(int64_t group) const { return Numbers(num_groups) + 2 * group; }
};

// Numbers of a group in the order in which CodeProducts has its codes: of bytes as they lie; of
// nibbles, all lower ones first.
template <int kBits>
inline void OrderNumbers(const float (&x)[kKvGroup], int64_t size, float (&to)[kKvGroup]) {
  constexpr int64_t kHalf = kKvGroup / 2;
  if constexpr (kBits == 8) {
    __builtin_memcpy(to, x, sizeof(to));
  } else if (size == kKvGroup) {
    for (int64_t i = 0; i < kHalf / 2; ++i) {
      to[2 * i] = x[i];
      to[2 * i + 1] = x[kHalf + i];
      to[kHalf + 2 * i] = x[kHalf / 2 + i];
      to[kHalf + 2 * i + 1] = x[kHalf + kHalf / 2 + i];
    }
  } else {
    for (int64_t i = 0; i < kHalf; ++i) {
      to[i] = x[2 * i];
      to[kHalf + i] = x[2 * i + 1];
    }
  }
}

// A group of a query, zeros behind its end, which is overwritten. One that is not finite gets a
// scale of NaN.
template <int kBits>
inline void RoundGroup(float (&x)[kKvGroup], int64_t size, float* numbers, float* scales) {
  Simd::F most = Simd::Zero();
  Simd::F bad = Simd::Zero();
  for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) {
    const Simd::F v = Simd::Load(x + i);
    most = Simd::Max(Simd::Abs(v), most);
    bad = Simd::Fma(v, Simd::Zero(), bad);
  }
  const float largest = Simd::MaxOf(most);
  const float nan = Simd::Sum(bad);  // or 0
  const bool is_finite = nan == 0.0F;
  const float factor = largest < kKvQueryLeast ? 0.0F : kKvQueryMost / largest;
  Simd::F sums = Simd::Zero();
  for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) {
    const Simd::F element = is_finite ? Simd::Load(x + i) : Simd::Zero();
    const Simd::F number = Simd::Round(Simd::Mul(element, Simd::Set(factor)));
    sums = Simd::Add(sums, number);  // exact
    Simd::Store(x + i, number);
  }
  const float scale = (factor == 0.0F ? 0.0F : largest / kKvQueryMost) + nan;
  scales[0] = scale;
  scales[1] = scale * Simd::Sum(sums);
  float ordered[kKvGroup];
  OrderNumbers<kBits>(x, size, ordered);
  CodeProducts::StoreNumbers(ordered, numbers);
}

// A query, scaled, zeros behind head_dim to a whole number of registers. Its elements become what
// the numbers stand for.
template <int kBits>
inline void RoundQuery(float* q, int64_t head_dim, const CodeQuery& to) {
  for (int64_t group = 0; group < to.num_groups; ++group) {
    const int64_t begin = group * kKvGroup;
    const int64_t size = MinOf(kKvGroup, head_dim - begin);
    float x[kKvGroup] = {};
    for (int64_t i = 0; i < size; i += Simd::kLanes) Simd::Store(x + i, Simd::Load(q + begin + i));
    RoundGroup<kBits>(x, size, to.Numbers(group), to.Scales(group));
    const Simd::F scale = Simd::Set(to.Scales(group)[0]);
    for (int64_t i = 0; i < size; i += Simd::kLanes)
      Simd::Store(q + begin + i, Simd::Mul(scale, Simd::Load(x + i)));
  }
}

// q . k of kLanes slots, of the groups so far: dots += (min + scale * code) . numbers of one more.
// `sums`: codes . numbers, whole numbers; `range`: min, scale of each slot.
inline __attribute__((always_inline)) Simd::F AddProducts(Simd::F dots, Simd::F sums,
                                                          const Simd::Pair& range,
                                                          const float* scales) {
  dots = Simd::Fma(Simd::Mul(range.second, Simd::Set(scales[0])), Simd::FromInts(sums), dots);
  return Simd::Fma(range.first, Simd::Set(scales[1]), dots);
}

// q . k of kLanes slots from `slot`, which lie in one KV block, for one query.
template <int kBits, int64_t kDim>
Simd::F Dots(const CodeQuery& query, const CodedBlock<kBits, kDim>& keys, int64_t slot) {
  const int64_t code_bytes = keys.code_bytes();
  const BlockLines lines = keys.LinesAt(slot);
  const std::byte* codes = keys.At(slot);
  const float* ranges = keys.RangesAt(slot);
  Simd::F dots = Simd::Zero();
  for (int64_t group = 0; group < keys.num_groups(); ++group) {
    const CodeProducts products(query.Numbers(group));
    const int64_t visit = keys.VisitOf(slot, group);
    const std::byte* at = codes;
    Simd::F sums[Simd::kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < Simd::kLanes; ++i, at += code_bytes) {
      lines.Fetch(visit + i);
      sums[i] = products.Of<kBits>(at);
    }
    const Simd::Pair range = Simd::LoadPairs(ranges);
    dots = AddProducts(dots, Simd::SumEachInts(sums), range, query.Scales(group));
    codes += kKvGroup * kBits / 8;
    ranges += keys.kGroupFloats;
  }
  return dots;
}

// Some queries, and where their dots go.
struct CodeQueries {
  CodeQuery first;
  int64_t count;
  int64_t floats;  // from one to the next
  float* to;
  int64_t to_stride;

  CodeQuery At(int64_t query) const { return {first.data + query * floats, first.num_groups}; }
};

// The same for some queries, with the same bits. They share a group's codes, transposed so that a
// register has some places of all slots.
template <int kBits, int64_t kDim>
void DotsOf(const CodeQueries& queries, const CodedBlock<kBits, kDim>& keys, int64_t slot) {
  const std::byte* codes = keys.At(slot);
  const float* ranges = keys.RangesAt(slot);
  const BlockLines lines = keys.LinesAt(slot);
  for (int64_t group = 0; group < keys.num_groups(); ++group) {
    alignas(64) float tile[CodeProducts::kTileRows][Simd::kLanes];
    CodeProducts::LoadTile<kBits>(codes, keys.code_bytes(), tile);
    const Simd::Pair range = Simd::LoadPairs(ranges);
    const int64_t visit = keys.VisitOf(slot, group);
    int64_t fetched = 0;
    float* to = queries.to;
    for (int64_t i = 0; i < queries.count; ++i, to += queries.to_stride) {
      for (; fetched * queries.count < (i + 1) * Simd::kLanes; ++fetched)
        lines.Fetch(visit + fetched);
      const CodeQuery query = queries.At(i);
      const Simd::F sums = CodeProducts::OfTile(tile, query.Numbers(group));
      const Simd::F dots = group == 0 ? Simd::Zero() : Simd::Load(to);
      Simd::Store(to, AddProducts(dots, sums, range, query.Scales(group)));
    }
    codes += kKvGroup * kBits / 8;
    ranges += keys.kGroupFloats;
  }
}

// What is added to the keys of kLanes slots, [head_dim] each.
struct AddedRows {
  const float* of[Simd::kLanes];

  bool IsOne() const {
    for (const float* row : of) {
      if (row != of[0]) return false;
    }
    return true;
  }
};

// q . row in the lanes of a register.
inline Simd::F LanesOfDot(const float* q, const float* row, int64_t head_dim) {
  Simd::F sums = Simd::Zero();
  int64_t d = 0;
  for (; d + Simd::kLanes <= head_dim; d += Simd::kLanes)
    sums = Simd::Fma(Simd::Load(q + d), Simd::Load(row + d), sums);
  if (d == head_dim) return sums;
  return Simd::Fma(Simd::Load(q + d), Simd::LoadPart(row + d, head_dim - d), sums);
}

// q . row of each slot. Neighbours often have the same row, and always the same bits then.
inline Simd::F DotsOfRows(const float* q, const AddedRows& rows, int64_t head_dim) {
  if (rows.IsOne()) return Simd::Set(Simd::Sum(LanesOfDot(q, rows.of[0], head_dim)));
  Simd::F sums[Simd::kLanes];
  for (int64_t i = 0; i < Simd::kLanes; ++i) sums[i] = LanesOfDot(q, rows.of[i], head_dim);
  return Simd::SumEach(sums);
}

}  // namespace
}  // namespace spillway::kernels
