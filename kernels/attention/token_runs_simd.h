// K and V of 16 bits attended to where they lie in the cache. All of the last KV block may be read;
// what lies in slots not yet written does not matter. Compiled once per instruction set, by
// attention_simd.h, whose order of additions this is.
#pragma once

#include "kernels/simd/simd.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kLanes = Simd::kLanes;

// Slots of a KV block that one register of lanes covers, and the number of KV blocks that it
// covers.
template <int64_t kBlockSlots>
constexpr int64_t kRunSlots = MinOf(kLanes, kBlockSlots);
template <int64_t kBlockSlots>
constexpr int64_t kLaneRuns = kLanes / kRunSlots<kBlockSlots>;

// Layout of a row's KV blocks.
struct RowBlocks {
  int64_t block_bytes;  // from one to the next
  int64_t num_slots;    // of all of them
  int64_t head_dim;
};

// Runs of 16-bit keys or values: one head's tokens in a KV block, one behind the other. kDim:
// head_dim at compile time, so that addresses are constants; computed at run time, they take as
// many instructions as the arithmetic. kDim 0: any head_dim.
template <DType kKv, int64_t kBlockSlots, int64_t kDim>
struct TokenRuns {
  static constexpr int64_t kSlots = kRunSlots<kBlockSlots>;
  static constexpr int64_t kRuns = kLaneRuns<kBlockSlots>;
  static_assert(kLanes % kSlots == 0 && kBlockSlots % kSlots == 0 && kRuns <= 2);

  const uint16_t* data[kRuns];
  int64_t head_dim;
  int64_t ahead;  // bytes from what is read to what is fetched meanwhile

  // kLanes tokens from `slot` of the row; `run` is the head's in that slot's KV block. Where there
  // is no other KV block, the last one is read again in its place.
  TokenRuns(const std::byte* run, int64_t slot, const RowBlocks& row, int64_t fetch_ahead)
      : head_dim(row.head_dim), ahead(fetch_ahead) {
    data[0] = reinterpret_cast<const uint16_t*>(run) + slot % kBlockSlots * dim();
    if constexpr (kRuns == 2) {
      const int64_t next = slot + kBlockSlots < row.num_slots ? row.block_bytes : 0;
      data[1] = reinterpret_cast<const uint16_t*>(run + next);
    }
  }
  int64_t dim() const { return kDim > 0 ? kDim : head_dim; }
  const uint16_t* Token(int64_t i) const { return data[i / kSlots] + i % kSlots * dim(); }
  __attribute__((always_inline)) void FetchAhead(const uint16_t* at, int64_t elements) const {
    Fetch(reinterpret_cast<const std::byte*>(at) + ahead, elements * 2);
  }
};

// acc[i] += query . token i's kRegs registers at element d; or one, of the `part` lanes that exist.
// Unrolled by force: an index that is not a constant would put the accumulators in memory.
template <int kRegs, bool kPart, DType kKv, int64_t kBlockSlots, int64_t kDim>
inline __attribute__((always_inline)) void AddDots(Simd::F (&acc)[kLanes], const float* query,
                                                   const TokenRuns<kKv, kBlockSlots, kDim>& keys,
                                                   int64_t d, int64_t part) {
  static_assert(!kPart || kRegs == 1);
  Simd::F queries[kRegs];
#pragma GCC unroll 16
  for (int i = 0; i < kRegs; ++i) queries[i] = Simd::Load(query + d + i * kLanes);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    const uint16_t* at = keys.Token(i) + d;
    keys.FetchAhead(at, kPart ? part : kRegs * kLanes);
#pragma GCC unroll 16
    for (int reg = 0; reg < kRegs; ++reg) {
      const Simd::F key = kPart ? LoadPartAs<kKv>(at, 0, part) : LoadAs<kKv>(at, reg * kLanes);
      acc[i] = Simd::Fma(queries[reg], key, acc[i]);
    }
  }
}

// Registers of a token, where kDim is a whole number of them. 0: it is not, or code that handles a
// token at once would be too large (over 16 registers, or registers of 4 lanes).
template <int64_t kDim>
constexpr int kTokenRegs =
    kLanes >= 8 && kDim % kLanes == 0 && kDim / kLanes <= 16 ? kDim / kLanes : 0;

// q . k of kLanes tokens. Each token is read whole before the next where possible, so that memory
// is read sequentially: in pieces of 128 bytes, tokens of 256 bytes were read at two thirds of the
// rate.
template <DType kKv, int64_t kBlockSlots, int64_t kDim>
inline __attribute__((always_inline)) Simd::F Dots(const float* q,
                                                   const TokenRuns<kKv, kBlockSlots, kDim>& keys) {
  constexpr int kRegs = kTokenRegs<kDim>;
  Simd::F acc[kLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) acc[i] = Simd::Zero();
  if constexpr (kRegs > 0) {
    AddDots<kRegs, false>(acc, q, keys, 0, 0);
  } else {
    const int64_t dim = keys.dim();
    int64_t d = 0;
    for (; d + 4 * kLanes <= dim; d += 4 * kLanes) AddDots<4, false>(acc, q, keys, d, 0);
    for (; d + 2 * kLanes <= dim; d += 2 * kLanes) AddDots<2, false>(acc, q, keys, d, 0);
    for (; d + kLanes <= dim; d += kLanes) AddDots<1, false>(acc, q, keys, d, 0);
    if (d < dim) AddDots<1, true>(acc, q, keys, d, dim - d);
  }
  return Simd::SumEach(acc);
}

// A query's weighted sums of values over `count` tokens: sums = sums * factor + weights . values.
struct Weighed {
  int64_t count;
  const float* weights;
  const float* factor;  // null: keep the sums as they are
  float* sums;
};

// Adds kRegs registers of the values at element d; or one, of the `part` lanes that exist.
template <int kRegs, bool kPart, DType kKv, int64_t kBlockSlots, int64_t kDim>
inline __attribute__((always_inline)) void AddValues(
    const Weighed& weighed, const TokenRuns<kKv, kBlockSlots, kDim>& values, int64_t d,
    int64_t part) {
  static_assert(!kPart || kRegs == 1);
  Simd::F acc[kRegs];
#pragma GCC unroll 16
  for (int i = 0; i < kRegs; ++i) acc[i] = Simd::Load(weighed.sums + d + i * kLanes);
  if (weighed.factor != nullptr) {
    const Simd::F factor = Simd::Set(*weighed.factor);
#pragma GCC unroll 16
    for (int i = 0; i < kRegs; ++i) acc[i] = Simd::Mul(acc[i], factor);
  }
  const float* weights = weighed.weights;
  for (int64_t run = 0; run < kLaneRuns<kBlockSlots>; ++run) {
    const uint16_t* at = values.data[run] + d;
    const float* end = weighed.weights + MinOf((run + 1) * kRunSlots<kBlockSlots>, weighed.count);
    for (; weights < end; ++weights, at += values.dim()) {
      values.FetchAhead(at, kPart ? part : kRegs * kLanes);
      const Simd::F weight = Simd::Set(*weights);
#pragma GCC unroll 16
      for (int i = 0; i < kRegs; ++i) {
        const Simd::F value = kPart ? LoadPartAs<kKv>(at, 0, part) : LoadAs<kKv>(at, i * kLanes);
        acc[i] = Simd::Fma(weight, value, acc[i]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRegs; ++i) Simd::Store(weighed.sums + d + i * kLanes, acc[i]);
}

// Each token is read whole before the next here too. Where 16 sums and their operands exceed the
// registers, two sums in memory cost less than reading tokens in halves.
template <DType kKv, int64_t kBlockSlots, int64_t kDim>
inline __attribute__((always_inline)) void AddAllValues(
    const Weighed& weighed, const TokenRuns<kKv, kBlockSlots, kDim>& values) {
  constexpr int kRegs = kTokenRegs<kDim>;
  if constexpr (kRegs > 0) {
    AddValues<kRegs, false>(weighed, values, 0, 0);
  } else {
    const int64_t dim = values.dim();
    int64_t d = 0;
    for (; d + 4 * kLanes <= dim; d += 4 * kLanes) AddValues<4, false>(weighed, values, d, 0);
    for (; d + kLanes <= dim; d += kLanes) AddValues<1, false>(weighed, values, d, 0);
    if (d < dim) AddValues<1, true>(weighed, values, d, dim - d);
  }
}

}  // namespace
}  // namespace spillway::kernels
