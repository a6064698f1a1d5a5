// Queries of a group on one run of keys or values, widened to fp32 once for all of them: some
// slots of one KV head, few enough to stay in the first-level cache. A query's result has the bits
// that Dots and AddAllValues of token_runs_simd.h give. Private to attention_decode_simd.h:
// compiled once per instruction set.
#pragma once

#include "kernels/attention/attention_block_simd.h"
#include "kernels/simd/simd.h"

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
inline int64_t ValueParts(int64_t group) { return (group + kValueQueries - 1) / kValueQueries; }

// MulAllValues of `count` queries. Requires: 1 <= count <= kMost.
template <int kMost>
void MulValuesOf(int64_t count, const ValueArgs& args, int64_t padded_dim, LinesAhead& ahead) {
  if constexpr (kMost > 1) {
    if (count < kMost) return MulValuesOf<kMost - 1>(count, args, padded_dim, ahead);
  }
  MulAllValues<kMost>(args, padded_dim, ahead);
}

// Adds the values of a run to the sums of a group of queries.
inline void AddSharedValues(ValueArgs args, int64_t group, int64_t padded_dim, LinesAhead& ahead) {
  for (int64_t left = group, parts = ValueParts(group); parts > 0; --parts) {
    const int64_t count = (left + parts - 1) / parts;
    MulValuesOf<kValueQueries>(count, args, padded_dim, ahead);
    left -= count;
    args.weights += count * kAttentionKeys;
    if (args.factors != nullptr) args.factors += count;
    args.sums += count * args.sums_stride;
  }
}

}  // namespace
}  // namespace spillway::kernels
