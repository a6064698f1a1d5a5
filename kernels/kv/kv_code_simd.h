// K and V below 16 bits, as kernels/kv/kv_code.h defines them: stored, read, and attended to from
// registers. Compiled once per instruction set, by attention_simd.h.
#pragma once

#include "kernels/kv/kv_code.h"
#include "kernels/kv/kv_range.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kGroupVectors = kKvGroup / Simd::kLanes;

constexpr int64_t GroupCodeBytes(int bits) { return kKvGroup * bits / 8; }

// Stores a group's codes, which are whole numbers, where kernels/kv/kv_code.h says.
template <int kBits>
void PackCodes(const float (&code)[kKvGroup], int64_t size, uint8_t* to) {
  if (kBits == 4 && size == kKvGroup) {
    for (int64_t i = 0; i < 16; i += Simd::kLanes) {
      Simd::F word =
          Simd::Fma(Simd::Load(code + 48 + i), Simd::Set(16.0F), Simd::Load(code + 32 + i));
      word = Simd::Fma(word, Simd::Set(16.0F), Simd::Load(code + 16 + i));
      Simd::StoreShorts(to + 2 * i, Simd::Fma(word, Simd::Set(16.0F), Simd::Load(code + i)));
    }
    return;
  }
  uint8_t bytes[kKvGroup];
  for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes)
    Simd::StoreBytes(bytes + i, Simd::Load(code + i));
  if constexpr (kBits == 8) {
    __builtin_memcpy(to, bytes, static_cast<size_t>((size + 3) / 4 * 4));
  } else {
    for (int64_t i = 0; i < (size + 7) / 8 * 4; ++i)
      to[i] = static_cast<uint8_t>(bytes[2 * i] | bytes[2 * i + 1] << 4);
  }
}

inline KvRange RangeOf(const float (&x)[kKvGroup], int bits) {
  Simd::F highest = Simd::Load(x);
  Simd::F lowest = Simd::Sub(Simd::Zero(), highest);  // the highest of the negated
  Simd::F bad = Simd::Zero();                         // NaN where an element is not finite
  for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) {
    const Simd::F v = Simd::Load(x + i);
    highest = Simd::Max(highest, v);
    lowest = Simd::Max(lowest, Simd::Sub(Simd::Zero(), v));
    bad = Simd::Fma(v, Simd::Zero(), bad);
  }
  const float sum = Simd::Sum(bad);
  if (sum != sum) return KvRanges<Simd>::Of(sum, sum, bits);
  return KvRanges<Simd>::Of(-Simd::MaxOf(lowest), Simd::MaxOf(highest), bits);
}

// Codes of a group's elements, whole numbers, by their distances from the min, to `code`.
// Requires: scale is not 0.
struct GroupCodes {
  const float (&distance)[kKvGroup];
  float scale;
  float steps;

  Simd::F Clamped(Simd::F whole) const {
    return Simd::Min(Simd::Set(steps), Simd::Max(Simd::Zero(), whole));
  }
  // By the reciprocal. False: a quotient may be so close to a half that division rounds it to
  // another number. Both differ from the exact one by 2^-23 of it, which is 256 at most.
  bool Multiply(float (&code)[kKvGroup]) const {
    const Simd::F inverse = Simd::Set(1.0F / scale);
    Simd::F farthest = Simd::Zero();
    for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) {
      const Simd::F quotient = Simd::Mul(Simd::Load(distance + i), inverse);
      const Simd::F whole = Simd::Round(quotient);
      farthest = Simd::Max(farthest, Simd::Abs(Simd::Sub(quotient, whole)));
      Simd::Store(code + i, Clamped(whole));
    }
    return Simd::Bits(Simd::Less(Simd::Set(0.4999F), farthest)) == 0;
  }
  void Divide(float (&code)[kKvGroup]) const {
    for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) {
      const Simd::F quotient = Simd::Div(Simd::Load(distance + i), Simd::Set(scale));
      Simd::Store(code + i, Clamped(Simd::Round(quotient)));
    }
  }
};

// Requires: range.scale is not 0.
inline void FindCodes(const KvRange& range, int bits, const float (&x)[kKvGroup],
                      float (&code)[kKvGroup]) {
  const Simd::F min = Simd::Set(Simd::OfHalf(range.min));
  const Simd::F largest = Simd::Set(KvRanges<Simd>::kLargestHalf);
  const Simd::F least = Simd::Set(-KvRanges<Simd>::kLargestHalf);
  float distance[kKvGroup];
  for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) {
    const Simd::F v = Simd::Min(largest, Simd::Max(least, Simd::Load(x + i)));
    Simd::Store(distance + i, Simd::Sub(v, min));
  }
  const GroupCodes codes = {distance, Simd::OfHalf(range.scale), static_cast<float>(KvSteps(bits))};
  if (!codes.Multiply(code)) codes.Divide(code);
}

// Sum of a group's elements, in the order of KvSum: lanes of 16 side by side, then their halves.
inline float GroupSum(const float* x, int64_t size) {
  Simd::F sums[16 / Simd::kLanes];
  for (Simd::F& sum : sums) sum = Simd::Zero();
  int64_t at = 0;
  for (; at + 16 <= size; at += 16) {
    for (int64_t v = 0; v < 16 / Simd::kLanes; ++v)
      sums[v] = Simd::Add(sums[v], Simd::Load(x + at + v * Simd::kLanes));
  }
  for (int64_t v = 0; at < size; ++v, at += Simd::kLanes)
    sums[v] = Simd::Add(sums[v], Simd::LoadPart(x + at, MinOf(Simd::kLanes, size - at)));
#pragma GCC unroll 2
  for (int64_t half = 8 / Simd::kLanes; half > 0; half /= 2) {
    for (int64_t v = 0; v < half; ++v) sums[v] = Simd::Add(sums[v], sums[v + half]);
  }
  return Simd::Sum(sums[0]);
}

// One group of at most 64 elements.
template <int kBits>
void EncodeGroup(const float* from, int64_t size, uint8_t* codes, uint16_t* range_to) {
  float x[kKvGroup];
  if (size == kKvGroup) {
    for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) Simd::Store(x + i, Simd::Load(from + i));
  } else {  // behind the group's end its first element, which changes no range
    for (int64_t i = 0; i < kKvGroup; ++i) x[i] = from[i < size ? i : 0];
  }
  const KvRange range = RangeOf(x, kBits);
  range_to[0] = range.min;
  range_to[1] = range.scale;
  float code[kKvGroup] = {};
  if (range.scale != 0) {
    FindCodes(range, kBits, x, code);
    for (int64_t i = size; i < kKvGroup; ++i) code[i] = 0;
    const auto sum_of_codes = static_cast<int64_t>(GroupSum(code, kKvGroup));  // exact
    range_to[0] = KvRanges<Simd>::MovedMin(range, GroupSum(from, size), sum_of_codes, size);
  }
  PackCodes<kBits>(code, size, codes);
}

// One token's K, or V, of one head. `ranges`: of its first group.
template <int kBits>
void EncodeToken(const float* x, int64_t head_dim, std::byte* codes, std::byte* ranges) {
  for (int64_t begin = 0; begin < head_dim; begin += kKvGroup) {
    EncodeGroup<kBits>(x + begin, MinOf(kKvGroup, head_dim - begin),
                       reinterpret_cast<uint8_t*>(codes) + begin * kBits / 8,
                       reinterpret_cast<uint16_t*>(ranges + begin / kKvGroup * kKvRangeStride));
  }
}

// Lines of memory that are prefetched while a KV block is read: some at each visit, of which there
// is one to each slot and group. Spread, since a burst of requests would fill the line buffers, and
// arithmetic would wait for them.
struct BlockLines {
  const std::byte* at;
  int64_t num_lines;
  int64_t num_visits;

  __attribute__((always_inline)) void Fetch(int64_t visit) const {
    for (int64_t line = visit; line < num_lines; line += num_visits)
      __builtin_prefetch(at + 64 * line, 0, 2);
  }
};

// 64 slots of K or V of one head as they lie in the cache. All of the last KV block may be read;
// what lies in slots not yet written does not matter.
// kDim: head_dim where it is known at compile time, else 0.
template <int kBits, int64_t kDim>
struct CodedBlock {
  const std::byte* codes;  // of slot 0
  const float* ranges;     // [KV block][group][16][min, scale]
  int64_t head_dim;
  int64_t block_bytes;  // from KV block to KV block
  int64_t ahead;        // bytes from what is read to what is prefetched meanwhile
  int64_t ahead_part;   // bytes of it for each slot

  int64_t dim() const { return kDim > 0 ? kDim : head_dim; }
  int64_t num_groups() const { return KvGroups(dim()); }
  int64_t code_bytes() const { return KvCodeBytes(dim(), kBits); }
  const std::byte* At(int64_t slot) const {
    return codes + slot / kKvCodedBlockSlots * block_bytes +
           slot % kKvCodedBlockSlots * code_bytes();
  }
  // {min, scale} of a slot's first group; the next slot's are 2 floats on, the next group's
  // kGroupFloats.
  const float* RangesAt(int64_t slot) const {
    return ranges + slot / kKvCodedBlockSlots * num_groups() * kGroupFloats +
           slot % kKvCodedBlockSlots * 2;
  }
  // Those of the KV block of `slot`. The visit of a slot's group: VisitOf.
  BlockLines LinesAt(int64_t slot) const {
    return {codes + slot / kKvCodedBlockSlots * block_bytes + ahead,
            kKvCodedBlockSlots * ahead_part / 64, kKvCodedBlockSlots * num_groups()};
  }
  static int64_t VisitOf(int64_t slot, int64_t group) {
    return group * kKvCodedBlockSlots + slot % kKvCodedBlockSlots;
  }
  static constexpr int64_t kGroupFloats = 2 * kKvCodedBlockSlots;
};

// The values of a whole group.
template <int kBits>
inline __attribute__((always_inline)) void DecodeGroup(const std::byte* codes, const float* range,
                                                       Simd::F (&value)[kGroupVectors]) {
  const Simd::F min = Simd::Set(range[0]);
  const Simd::F scale = Simd::Set(range[1]);
  if constexpr (kBits == 4) {
    Simd::Dequantise(codes, min, scale, value);
  } else {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kGroupVectors; ++v)
      value[v] = Simd::Fma(scale, Simd::LoadBytes(codes + v * Simd::kLanes), min);
  }
}

// Values of one register of a shorter group. Lanes behind its end decode whatever lies there, the
// next token's codes or ranges, with this group's range: they are finite where the group is.
template <int kBits>
inline Simd::F DecodeVector(const std::byte* codes, const float* range) {
  const Simd::F code = kBits == 4 ? Simd::LoadNibbles(codes) : Simd::LoadBytes(codes);
  return Simd::Fma(Simd::Set(range[1]), code, Simd::Set(range[0]));
}

// Values of slots [0, count), in a KV block or more, to `to`, [slot][padded_dim].
template <int kBits, int64_t kDim>
void DecodeSlots(const CodedBlock<kBits, kDim>& block, int64_t count, int64_t padded_dim,
                 float* to) {
  const int64_t code_bytes = block.code_bytes();
  for (int64_t begin = 0; begin < count; begin += kKvCodedBlockSlots) {
    const int64_t slots = MinOf(kKvCodedBlockSlots, count - begin);
    const BlockLines lines = block.LinesAt(begin);
    const std::byte* codes = block.At(begin);
    const float* range = block.RangesAt(begin);
    float* out = to + begin * padded_dim;
    int64_t d = 0;
    for (; d + kKvGroup <= block.dim(); d += kKvGroup, range += block.kGroupFloats) {
      const int64_t visit = block.VisitOf(begin, d / kKvGroup);
      for (int64_t slot = 0; slot < slots; ++slot) {
        lines.Fetch(visit + slot);
        Simd::F value[kGroupVectors];
        DecodeGroup<kBits>(codes + slot * code_bytes + d * kBits / 8, range + 2 * slot, value);
        float* of_slot = out + slot * padded_dim + d;
        for (int64_t v = 0; v < kGroupVectors; ++v)
          Simd::Store(of_slot + v * Simd::kLanes, value[v]);
      }
    }
    for (int64_t slot = 0; slot < slots && d < padded_dim; ++slot) {
      if (d < block.dim()) lines.Fetch(block.VisitOf(begin, d / kKvGroup) + slot);
      for (int64_t rest = d; rest < padded_dim; rest += Simd::kLanes) {
        const std::byte* at = codes + slot * code_bytes + rest * kBits / 8;
        const bool is_there = rest < block.dim();
        Simd::Store(out + slot * padded_dim + rest,
                    is_there ? DecodeVector<kBits>(at, range + 2 * slot) : Simd::Zero());
      }
    }
  }
}

// acc = acc + weights . values of some registers from element d, over slots [0, end), slot by slot.
template <int64_t kVectors, int kBits, int64_t kDim>
inline void AddValues(const CodedBlock<kBits, kDim>& values, int64_t d, int64_t end,
                      const float* weights, Simd::F (&acc)[kVectors]) {
  const int64_t code_bytes = values.code_bytes();
  for (int64_t begin = 0; begin < end; begin += kKvCodedBlockSlots) {
    const std::byte* at = values.At(begin) + d * kBits / 8;
    const float* range = values.RangesAt(begin) + d / kKvGroup * values.kGroupFloats;
    const int64_t last = MinOf(end, begin + kKvCodedBlockSlots);
    const BlockLines lines = values.LinesAt(begin);
    int64_t visit = values.VisitOf(begin, d / kKvGroup);
    if (d % kKvGroup != 0) visit = lines.num_lines;  // a later register of its group
    for (int64_t slot = begin; slot < last; ++slot, at += code_bytes, range += 2) {
      lines.Fetch(visit++);
      Simd::F value[kVectors];
      if constexpr (kVectors == kGroupVectors) {
        DecodeGroup<kBits>(at, range, value);
      } else {
        value[0] = DecodeVector<kBits>(at, range);
      }
      const Simd::F weight = Simd::Set(weights[slot]);
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v) acc[v] = Simd::Fma(weight, value[v], acc[v]);
    }
  }
}

// sums = sums * factor + weights . values over slots [0, end), for one query.
template <int kBits, int64_t kDim>
void MulValues(const CodedBlock<kBits, kDim>& values, int64_t end, const float* weights,
               float factor, float* sums) {
  const Simd::F scaled = Simd::Set(factor);
  int64_t d = 0;
  for (; d + kKvGroup <= values.dim(); d += kKvGroup) {
    Simd::F acc[kGroupVectors];
    for (int64_t v = 0; v < kGroupVectors; ++v)
      acc[v] = Simd::Mul(Simd::Load(sums + d + v * Simd::kLanes), scaled);
    AddValues<kGroupVectors>(values, d, end, weights, acc);
    for (int64_t v = 0; v < kGroupVectors; ++v) Simd::Store(sums + d + v * Simd::kLanes, acc[v]);
  }
  for (; d < values.dim(); d += Simd::kLanes) {
    Simd::F acc[1] = {Simd::Mul(Simd::Load(sums + d), scaled)};
    AddValues<1>(values, d, end, weights, acc);
    Simd::Store(sums + d, acc[0]);
  }
}

}  // namespace
}  // namespace spillway::kernels
