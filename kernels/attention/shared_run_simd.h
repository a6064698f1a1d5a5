// Queries of a group on one run of keys or values, some slots of one KV head: keys, widened to fp32
// once for all of them, few enough to stay in the first-level cache; values, widened or decoded in
// registers. A query's result has the bits that Dots and AddAllValues of token_runs_simd.h give.
// Private to attention_decode_simd.h: compiled once per instruction set.
#pragma once

#include "kernels/attention/attention_block_simd.h"
#include "kernels/attention/lines_ahead_simd.h"
#include "kernels/kv/kv_code_simd.h"
#include "kernels/simd/simd.h"
#include "spillway/round.h"

namespace spillway::kernels {
namespace {

// q . k of kQueries queries and kLanes slots, from the run's first: dots[query]. Half of the
// accumulators of SumEach at a time, those whose sums it folds first, so that a key that is loaded
// serves two queries: one load to a multiply-add would be as much as a processor with two loads a
// cycle can do.
template <int kQueries>
struct SharedDots {
  static constexpr int64_t kHalf = kLanes / 2;
  static constexpr int64_t kQuarter = kLanes / 4;
  using Halves = Simd::F[kQueries][kHalf];

  const float* q;    // [query][stride]
  const float* run;  // [slot][stride], zeros behind dim
  int64_t stride;
  int64_t dim;

  // Sums of slots kPart * kQuarter to the next quarter's, and of those kHalf further on, folded
  // into s.
  template <int64_t kPart>
  inline __attribute__((always_inline)) void AddPart(Halves& s, LinesAhead& ahead) const {
    Simd::F acc[kQueries][kHalf];
#pragma GCC unroll 8
    for (int query = 0; query < kQueries; ++query)
#pragma GCC unroll 8
      for (int64_t i = 0; i < kHalf; ++i) acc[query][i] = Simd::Zero();
    for (int64_t d = 0; d < dim; d += kLanes) {
      ahead.FetchSome();
      Simd::F queries[kQueries];
#pragma GCC unroll 8
      for (int query = 0; query < kQueries; ++query)
        queries[query] = Simd::Load(q + query * stride + d);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kHalf; ++i) {
        const int64_t slot = kPart * kQuarter + i / 2 + i % 2 * kHalf;
        const Simd::F key = Simd::Load(run + slot * stride + d);
#pragma GCC unroll 8
        for (int query = 0; query < kQueries; ++query)
          acc[query][i] = Simd::Fma(queries[query], key, acc[query][i]);
      }
    }
#pragma GCC unroll 8
    for (int query = 0; query < kQueries; ++query)
#pragma GCC unroll 8
      for (int64_t i = 0; i < kQuarter; ++i)
        s[query][kPart * kQuarter + i] = Simd::Fold(acc[query][2 * i], acc[query][2 * i + 1]);
  }

  inline __attribute__((always_inline)) void Find(Simd::F (&dots)[kQueries],
                                                  LinesAhead& ahead) const {
    Halves s;
    AddPart<0>(s, ahead);
    AddPart<1>(s, ahead);
#pragma GCC unroll 8
    for (int query = 0; query < kQueries; ++query) dots[query] = Simd::SumFolded(s[query]);
  }
};

// Times that the values of a run are read for a group of queries: as many of these at a time as
// there are registers for.
inline int64_t ValueParts(int64_t group) { return DivideUp(group, int64_t{kValueQueries}); }

// Queries whose sums are registers together with a whole group of 64 values.
constexpr int kCodedValueQueries = kLanes == 16 ? 4 : 0;

// The same for kQ queries and a run of codes in one KV block, which are decoded in registers.
template <int kQ, int kBits, int64_t kDim>
void MulCodedValues(const CodedBlock<kBits, kDim>& values, const ValueArgs& args) {
  const int64_t code_bytes = values.code_bytes();
  const BlockLines lines = values.LinesAt(0);
  const float* ranges = values.RangesAt(0);
  int64_t d = 0;
  for (; d + kKvGroup <= values.dim(); d += kKvGroup, ranges += values.kGroupFloats) {
    ValueSums<kQ, kGroupVectors> sums(args, d);
    const std::byte* codes = values.At(0) + d * kBits / 8;
    const int64_t visit = values.VisitOf(0, d / kKvGroup);
    for (int64_t slot = 0; slot < args.end; ++slot, codes += code_bytes) {
      lines.Fetch(visit + slot);
      Simd::F value[kGroupVectors];
      DecodeGroup<kBits>(codes, ranges + 2 * slot, value);
      sums.Add(args, slot, value);
    }
    sums.Store(args, d);
  }
  int64_t visit = values.VisitOf(0, d / kKvGroup);
  for (; d < values.dim(); d += kLanes, visit = lines.num_lines) {
    ValueSums<kQ, 1> sums(args, d);
    const std::byte* codes = values.At(0) + d * kBits / 8;
    for (int64_t slot = 0; slot < args.end; ++slot, codes += code_bytes) {
      lines.Fetch(visit + slot);
      const Simd::F value[1] = {DecodeVector<kBits>(codes, ranges + 2 * slot)};
      sums.Add(args, slot, value);
    }
    sums.Store(args, d);
  }
}

// Values of 16 bits of one KV head: the tokens of some slots, in KV blocks of kBlockSlots.
template <DType kKv, int64_t kBlockSlots, int64_t kDim>
struct ValueRun {
  const std::byte* first;
  int64_t block_bytes;  // from KV block to KV block
  int64_t head_dim;

  int64_t dim() const { return kDim > 0 ? kDim : head_dim; }
  const std::byte* Token(int64_t slot) const {
    return first + slot / kBlockSlots * block_bytes + slot % kBlockSlots * 2 * dim();
  }
};

// Adds kV registers of the values from element d, or the `part` lanes of one that exist, for kQ
// queries.
template <int kQ, int kV, bool kPart, DType kKv, int64_t kBlockSlots, int64_t kDim>
inline __attribute__((always_inline)) void MulRunValues(const ValueRun<kKv, kBlockSlots, kDim>& run,
                                                        const ValueArgs& args, int64_t d,
                                                        int64_t part, LinesAhead& ahead) {
  static_assert(!kPart || kV == 1);
  ValueSums<kQ, kV> sums(args, d);
  for (int64_t slot = 0; slot < args.end; ++slot) {
    ahead.FetchSome();
    const std::byte* at = run.Token(slot);
    Simd::F value[kV];
    for (int v = 0; v < kV; ++v)
      value[v] = kPart ? LoadPartAs<kKv>(at, d, part) : LoadAs<kKv>(at, d + v * kLanes);
    sums.Add(args, slot, value);
  }
  sums.Store(args, d);
}

// All of head_dim. Values are widened in registers, so that none goes through memory.
template <int kQ, DType kKv, int64_t kBlockSlots, int64_t kDim>
void MulAllRunValues(const ValueRun<kKv, kBlockSlots, kDim>& run, const ValueArgs& args,
                     LinesAhead& ahead) {
  const int64_t dim = run.dim();
  int64_t d = 0;
  for (; d + kValueVectors * kLanes <= dim; d += kValueVectors * kLanes)
    MulRunValues<kQ, kValueVectors, false>(run, args, d, 0, ahead);
  for (; d + kLanes <= dim; d += kLanes) MulRunValues<kQ, 1, false>(run, args, d, 0, ahead);
  if (d < dim) MulRunValues<kQ, 1, true>(run, args, d, dim - d, ahead);
}

// A number of queries that is known at compile time.
template <int kValue>
struct QueryCount {
  static constexpr int value = kValue;
};

// Calls mul(QueryCount<count>). Requires: 1 <= count <= kMost.
template <int kMost, typename Mul>
void WithCount(int64_t count, Mul mul) {
  if constexpr (kMost > 1) {
    if (count < kMost) return WithCount<kMost - 1>(count, mul);
  }
  mul(QueryCount<kMost>{});
}

// Calls mul(their count, their arguments) with the queries of a group, kMost of them at a time.
template <int kMost, typename Mul>
void ForParts(ValueArgs args, int64_t group, Mul mul) {
  int64_t left = group;
  for (int64_t parts = DivideUp(group, int64_t{kMost}); parts > 0; --parts) {
    const int64_t count = DivideUp(left, parts);
    WithCount<kMost>(count, [&](auto queries) { mul(queries, args); });
    left -= count;
    args.weights += count * kAttentionKeys;
    if (args.factors != nullptr) args.factors += count;
    args.sums += count * args.sums_stride;
  }
}

// Adds the values of a run to the sums of a group of queries.
inline void AddSharedValues(const ValueArgs& args, int64_t group, int64_t padded_dim,
                            LinesAhead& ahead) {
  ForParts<kValueQueries>(args, group, [&](auto queries, const ValueArgs& part) {
    MulAllValues<queries.value>(part, padded_dim, ahead);
  });
}

// The same of values of 16 bits in the cache: widened once for each part of the group.
template <typename Run>
void AddRunValues(const Run& run, const ValueArgs& args, int64_t group, LinesAhead& ahead) {
  ForParts<kValueQueries>(args, group, [&](auto queries, const ValueArgs& part) {
    MulAllRunValues<queries.value>(run, part, ahead);
  });
}

// The same of a run of codes: those of a large group are decoded more than once.
template <int kBits, int64_t kDim>
void AddCodedValues(const CodedBlock<kBits, kDim>& values, const ValueArgs& args, int64_t group) {
  ForParts<kCodedValueQueries>(args, group, [&](auto queries, const ValueArgs& part) {
    MulCodedValues<queries.value>(values, part);
  });
}

}  // namespace
}  // namespace spillway::kernels
