// The body of a DecodeTask, compiled once per instruction set. In a query's own arithmetic there is
// no difference to Attend of attention_simd.h, and none in its bits; the order in which the heads
// and their slots are met follows the cache.
#pragma once

#include "kernels/attention_simd.h"
#include "kernels/next_read_simd.h"

namespace spillway::kernels {
namespace {

// From a head's run in a KV block to the one in the same block that is fetched meanwhile; with 16
// lanes two blocks are read at a time, and twice as much lies between. Measured in turns, heads of
// 64 in 16 bits, at 1 to 16 KiB: 2 KiB are best while memory is quick, and far too few while others
// use it; from 6 KiB on rates fall.
constexpr int64_t kAheadBytes = 3072;

// Runs of 16-bit keys or values: a head's tokens of a KV block, one behind the other. With kDim the
// compiler knows where each of them lies: worked out at run time, their addresses take as many
// instructions as the arithmetic. kDim 0: head_dim is none of those that have code of their own.
template <DType kKv, int64_t kDim>
struct TokenRuns {
  const uint16_t* data[kLaneRuns];
  int64_t head_dim;
  int64_t ahead;  // bytes from what is read to what is fetched meanwhile

  int64_t dim() const { return kDim > 0 ? kDim : head_dim; }
  const uint16_t* Token(int64_t i) const { return data[i / kRunSlots] + i % kRunSlots * dim(); }
  // To the first-level cache: there a request for a line that is already near costs the least.
  __attribute__((always_inline)) void FetchAhead(const uint16_t* at, int64_t elements) const {
    const std::byte* line = reinterpret_cast<const std::byte*>(at) + ahead;
    for (int64_t i = 0; i < elements * 2; i += 64) __builtin_prefetch(line + i, 0, 3);
  }
};

// acc[i] += query . token i's kPairs pairs of registers at element d. Each token's lines are read
// one after the other. Unrolled by force: an index that is not a constant would put the
// accumulators in memory.
template <int kPairs, DType kKv, int64_t kDim>
inline __attribute__((always_inline)) void AddDotPairs(Simd::F (&acc)[kLanes], const float* query,
                                                       const TokenRuns<kKv, kDim>& keys,
                                                       int64_t d) {
  Simd::F queries[2 * kPairs];
#pragma GCC unroll 4
  for (int i = 0; i < 2 * kPairs; ++i) queries[i] = Simd::Load(query + d + i * kLanes);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    const uint16_t* at = keys.Token(i) + d;
    keys.FetchAhead(at, kPairs * 2 * kLanes);
#pragma GCC unroll 2
    for (int pair = 0; pair < kPairs; ++pair) {
      const Simd::Pair key = LoadPairAs<kKv>(at, pair * 2 * kLanes);
      acc[i] = Simd::Fma(queries[2 * pair], key.first, acc[i]);
      acc[i] = Simd::Fma(queries[2 * pair + 1], key.second, acc[i]);
    }
  }
}

// The same of one register, or of the `part` lanes of it that exist.
template <bool kPart, DType kKv, int64_t kDim>
inline __attribute__((always_inline)) void AddDots(Simd::F (&acc)[kLanes], const float* query,
                                                   const TokenRuns<kKv, kDim>& keys, int64_t d,
                                                   int64_t part) {
  const Simd::F of_query = Simd::Load(query + d);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    const uint16_t* at = keys.Token(i) + d;
    keys.FetchAhead(at, kPart ? part : kLanes);
    const Simd::F key = kPart ? LoadPartAs<kKv>(at, 0, part) : LoadAs<kKv>(at, 0);
    acc[i] = Simd::Fma(of_query, key, acc[i]);
  }
}

// q . k of kLanes tokens.
template <DType kKv, int64_t kDim>
inline __attribute__((always_inline)) Simd::F Dots(const float* q,
                                                   const TokenRuns<kKv, kDim>& keys) {
  const int64_t dim = keys.dim();
  Simd::F acc[kLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) acc[i] = Simd::Zero();
  int64_t d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes) AddDotPairs<2>(acc, q, keys, d);
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes) AddDotPairs<1>(acc, q, keys, d);
  for (; d + kLanes <= dim; d += kLanes) AddDots<false>(acc, q, keys, d, 0);
  if (d < dim) AddDots<true>(acc, q, keys, d, dim - d);
  return Simd::SumEach(acc);
}

// What a query's sums of values take from `count` tokens: sums * factor + weights . values.
struct Weighed {
  int64_t count;
  const float* weights;
  const float* factor;  // null: keep the sums as they are
  float* sums;
};

// kRegs registers of them, at element d; or one, of the `part` lanes that exist.
template <int kRegs, bool kPart, DType kKv, int64_t kDim>
inline __attribute__((always_inline)) void AddValues(const Weighed& weighed,
                                                     const TokenRuns<kKv, kDim>& values, int64_t d,
                                                     int64_t part) {
  static_assert(!kPart || kRegs == 1);
  Simd::F acc[kRegs];
#pragma GCC unroll 8
  for (int i = 0; i < kRegs; ++i) acc[i] = Simd::Load(weighed.sums + d + i * kLanes);
  if (weighed.factor != nullptr) {
    const Simd::F factor = Simd::Set(*weighed.factor);
#pragma GCC unroll 8
    for (int i = 0; i < kRegs; ++i) acc[i] = Simd::Mul(acc[i], factor);
  }
  const float* weights = weighed.weights;
  for (int64_t run = 0; run < kLaneRuns; ++run) {
    const uint16_t* at = values.data[run] + d;
    const float* end = weighed.weights + MinOf((run + 1) * kRunSlots, weighed.count);
    for (; weights < end; ++weights, at += values.dim()) {
      values.FetchAhead(at, kPart ? part : kRegs * kLanes);
      const Simd::F weight = Simd::Set(*weights);
      if constexpr (kRegs == 1) {
        const Simd::F value = kPart ? LoadPartAs<kKv>(at, 0, part) : LoadAs<kKv>(at, 0);
        acc[0] = Simd::Fma(weight, value, acc[0]);
      } else {
#pragma GCC unroll 4
        for (int i = 0; i < kRegs; i += 2) {
          const Simd::Pair value = LoadPairAs<kKv>(at, i * kLanes);
          acc[i] = Simd::Fma(weight, value.first, acc[i]);
          acc[i + 1] = Simd::Fma(weight, value.second, acc[i + 1]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRegs; ++i) Simd::Store(weighed.sums + d + i * kLanes, acc[i]);
}

template <DType kKv, int64_t kDim>
inline __attribute__((always_inline)) void AddAllValues(const Weighed& weighed,
                                                        const TokenRuns<kKv, kDim>& values) {
  const int64_t dim = values.dim();
  int64_t d = 0;
  if constexpr (kLanes == 16 && kDim % (8 * kLanes) == 0 && kDim > 0) {
    for (; d < dim; d += 8 * kLanes) AddValues<8, false>(weighed, values, d, 0);
  }
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes) AddValues<4, false>(weighed, values, d, 0);
  for (; d + kLanes <= dim; d += kLanes) AddValues<1, false>(weighed, values, d, 0);
  if (d < dim) AddValues<1, true>(weighed, values, d, dim - d);
}

// kBits below 16: of codes, and kKv and kDim do not matter.
template <DType kKv, int kBits, int64_t kDim>
struct Decode {
  static constexpr int64_t kBlockSlots = KvBlockSlots(kBits);
  static constexpr int64_t kStep = MaxOf(kLanes, kBlockSlots);  // slots of a head before the next

  const DecodeTask& task;
  const AttentionArgs& args;
  const AttentionRow& row;
  int64_t group;
  int64_t num_heads;  // KV heads
  int64_t num_queries;
  int64_t num_slots;  // that the queries see
  int64_t padded_dim;
  int64_t code_bytes;    // of a token's K or V
  int64_t token_bytes;   // of the same, min and scale included
  int64_t heads_ahead;   // from the run that is read to the one that is fetched
  float* q;              // [query][padded_dim], scaled
  float* sums;           // [query][padded_dim]
  float* block_weights;  // [query][64]
  float* ranges;         // [group][16][min, scale] of a KV block of codes
  float* maxima;         // [query]
  float* totals;         // [query]
  float* factors;        // [query]: what the sums so far are multiplied by in this block

  explicit Decode(const DecodeTask& decode_task);
  // A division by what the compiler knows: there is one for each run of keys and of values.
  static_assert(kDecodeGroup == 2);
  int64_t HeadOf(int64_t query) const { return group == 1 ? query : query / 2; }
  int64_t KvHeadOf(int64_t query) const { return task.kv_head_begin + HeadOf(query); }
  float* ScoresOf(int64_t query, int64_t begin) const {
    if (task.weights == nullptr) return block_weights + query * kAttentionKeys;
    return task.weights + query * task.weights_stride + begin;
  }
  // A KV block's keys or values of the query's KV head.
  const std::byte* Run(bool values, int64_t query, int64_t slot) const {
    const int64_t head = (values ? args.num_kv_heads : 0) + KvHeadOf(query);
    return row.kv + slot / kBlockSlots * task.block_bytes + head * kBlockSlots * token_bytes;
  }
  // What comes behind a step of a block of 64 slots: the next, or the block's values behind its
  // keys, or the next block's keys behind its values.
  struct Step {
    bool values;
    int64_t begin;    // of the block
    int64_t slot;     // of the step, in the block
    int64_t visible;  // slots of the block
  };
  int64_t Ahead(const Step& step, int64_t query) const;
  // Of the query's KV head: the step's KV block of codes; kLanes tokens from the step's slot `at`.
  CodedBlock<kBits> Coded(const Step& step, int64_t query) const;
  TokenRuns<kKv, kDim> RunsAt(const Step& step, int64_t query, int64_t at) const;

  void LoadQueries() const;
  void Scores(int64_t begin, int64_t visible) const;
  void Softmax(int64_t begin, int64_t visible) const;
  void Values(int64_t begin, int64_t visible) const;
  void FinishWeights() const;
  void StoreOutputs() const;
  void Execute() const;
};

template <DType kKv, int kBits, int64_t kDim>
Decode<kKv, kBits, kDim>::Decode(const DecodeTask& decode_task)
    : task(decode_task),
      args(*task.args),
      row(*task.row),
      group(args.num_heads / args.num_kv_heads),
      num_heads(task.kv_head_end - task.kv_head_begin),
      num_queries(num_heads * group),
      num_slots(row.num_past + 1),
      padded_dim(AttentionPaddedDim(args.head_dim)),
      code_bytes(KvCodeBytes(args.head_dim, kBits)),
      token_bytes(KvTokenBytes(args.head_dim, kBits)),
      heads_ahead(MinOf(num_heads, MaxOf(1, kAheadBytes / (kBlockSlots * token_bytes)))),
      q(task.scratch),
      sums(q + kDecodeQueries * padded_dim),
      block_weights(sums + kDecodeQueries * padded_dim),
      ranges(block_weights + kDecodeQueries * kAttentionKeys),
      maxima(ranges + 2 * kKvCodedBlockSlots * KvGroups(args.head_dim)),
      totals(maxima + kDecodeQueries),
      factors(totals + kDecodeQueries) {}

// The queries' heads lie side by side, and so do their outputs.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::LoadQueries() const {
  const Simd::F scale = Simd::Set(args.scale);
  const float* from =
      args.q + row.token_offset * args.qkv_stride + task.kv_head_begin * group * args.head_dim;
  for (int64_t query = 0; query < num_queries; ++query, from += args.head_dim) {
    for (int64_t d = 0; d < padded_dim; d += kLanes) {
      const int64_t n = d < args.head_dim ? MinOf(kLanes, args.head_dim - d) : 0;
      Simd::Store(q + query * padded_dim + d, Simd::Mul(scale, Simd::LoadPart(from + d, n)));
      Simd::Store(sums + query * padded_dim + d, Simd::Zero());
    }
  }
  for (int64_t query = 0; query < kDecodeQueries; ++query) {
    maxima[query] = kMinusInfinity;
    totals[query] = 0;
    factors[query] = 0;
  }
}

// Bytes from a head's run to the one that is fetched: behind the step's last head that is one of
// the first heads in the step that follows.
template <DType kKv, int kBits, int64_t kDim>
int64_t Decode<kKv, kBits, kDim>::Ahead(const Step& step, int64_t query) const {
  const int64_t run_bytes = kBlockSlots * token_bytes;
  if (HeadOf(query) + heads_ahead < num_heads) return heads_ahead * run_bytes;
  const int64_t to_first_heads = (heads_ahead - num_heads) * run_bytes;
  const int64_t to_values = args.num_kv_heads * run_bytes;
  const int64_t next_step = kStep / kBlockSlots * task.block_bytes;
  if (step.slot + kStep < step.visible) return to_first_heads + next_step;
  if (!step.values) return to_first_heads + to_values - step.slot / kBlockSlots * task.block_bytes;
  return step.begin + kAttentionKeys < num_slots ? to_first_heads + next_step - to_values : 0;
}

template <DType kKv, int kBits, int64_t kDim>
CodedBlock<kBits> Decode<kKv, kBits, kDim>::Coded(const Step& step, int64_t query) const {
  const std::byte* run = Run(step.values, query, step.begin + step.slot);
  const auto* from = reinterpret_cast<const uint16_t*>(run + kBlockSlots * code_bytes);
  const int64_t floats = kBlockSlots * 2 * KvGroups(args.head_dim);
  for (int64_t i = 0; i < floats; i += kLanes) Simd::Store(ranges + i, Simd::LoadHalf(from + i));
  return {run, ranges, args.head_dim, task.block_bytes, Ahead(step, query)};
}

// Where there is no other KV block, the last one is read again in its place.
template <DType kKv, int kBits, int64_t kDim>
TokenRuns<kKv, kDim> Decode<kKv, kBits, kDim>::RunsAt(const Step& step, int64_t query,
                                                      int64_t at) const {
  const int64_t slot = step.begin + step.slot + at;
  TokenRuns<kKv, kDim> runs;
  runs.head_dim = args.head_dim;
  runs.ahead = Ahead(step, query);
  const std::byte* first = Run(step.values, query, slot);
  runs.data[0] = reinterpret_cast<const uint16_t*>(first) + slot % kBlockSlots * runs.dim();
  static_assert(kLaneRuns <= 2);
  if constexpr (kLaneRuns == 2) {
    const int64_t next = slot + kBlockSlots < row.num_slots ? task.block_bytes : 0;
    runs.data[1] = reinterpret_cast<const uint16_t*>(first + next);
  }
  return runs;
}

// Lanes past the last slot hold a score of nothing; Softmax replaces them.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Scores(int64_t begin, int64_t visible) const {
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    for (int64_t query = 0; query < num_queries; ++query) {
      const Step step = {false, begin, slot, visible};
      const float* of_query = q + query * padded_dim;
      float* to = ScoresOf(query, begin) + slot;
      if constexpr (kBits < 16) {
        const CodedBlock<kBits> keys = Coded(step, query);
        for (int64_t at = 0; at < kStep; at += kLanes)
          Simd::Store(to + at, Dots(of_query, keys, at, args.head_dim));
      } else {
        for (int64_t at = 0; at < kStep; at += kLanes)
          Simd::Store(to + at, Dots(of_query, RunsAt(step, query, at)));
      }
    }
  }
}

// One step for all queries, then the next: alone, each is a chain of latencies.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Softmax(int64_t begin, int64_t visible) const {
  for (int64_t query = 0; query < num_queries; ++query) {
    const float maximum = HighestScore(ScoresOf(query, begin), visible, maxima[query]);
    factors[query] = maxima[query] - maximum;
    maxima[query] = maximum;
  }
  for (int64_t query = 0; query < num_queries; query += kLanes)
    Simd::Store(factors + query, Exp(Simd::Load(factors + query)));
  for (int64_t query = 0; query < num_queries; ++query) {
    const float total = WeighScores(ScoresOf(query, begin), visible, maxima[query],
                                    block_weights + query * kAttentionKeys);
    totals[query] = totals[query] * factors[query] + total;
  }
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Values(int64_t begin, int64_t visible) const {
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const int64_t count = MinOf(kStep, visible - slot);
    for (int64_t query = 0; query < num_queries; ++query) {
      const Step step = {true, begin, slot, visible};
      const float* weights = block_weights + query * kAttentionKeys + slot;
      float* to = sums + query * padded_dim;
      if constexpr (kBits < 16) {
        MulValues(Coded(step, query), count, weights, slot == 0 ? factors[query] : 1.0F, to);
      } else {
        const float* factor = slot == 0 ? factors + query : nullptr;
        for (int64_t at = 0; at < count; at += kLanes, factor = nullptr)
          AddAllValues({MinOf(kLanes, count - at), weights + at, factor, to},
                       RunsAt(step, query, at));
      }
    }
  }
}

// Each is exp(score - maximum) / total anew: the exps of the pass are relative to the maximum of
// their time, so that equal scores in two blocks would end up an ulp apart.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::FinishWeights() const {
  int64_t next = 0;
  for (int64_t query = 0; query < num_queries; ++query) {
    const float* scores = task.weights + query * task.weights_stride;
    float* to = task.weights + HeadOf(query) * task.weights_stride;
    const Simd::F maximum = Simd::Set(maxima[query]);
    const Simd::F inverse = Simd::Set(1.0F / totals[query]);
    const bool first = query % group == 0;
    for (int64_t slot = 0; slot < num_slots; slot += kLanes) {
      const Simd::F sum = first ? Simd::Zero() : Simd::Load(to + slot);
      const Simd::F weight = Exp(Simd::Sub(Simd::Load(scores + slot), maximum));
      Simd::Store(to + slot, Simd::Fma(inverse, weight, sum));
      next = FetchNext(task.next, next);
    }
  }
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::StoreOutputs() const {
  float* to =
      args.out + row.token_offset * args.out_stride + task.kv_head_begin * group * args.head_dim;
  for (int64_t query = 0; query < num_queries; ++query, to += args.head_dim) {
    const Simd::F scale = Simd::Set(1.0F / totals[query]);
    for (int64_t d = 0; d < args.head_dim; d += kLanes) {
      Simd::StorePart(to + d, Simd::Mul(scale, Simd::Load(sums + query * padded_dim + d)),
                      MinOf(kLanes, args.head_dim - d));
    }
  }
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Execute() const {
  LoadQueries();
  for (int64_t begin = 0; begin < num_slots; begin += kAttentionKeys) {
    const int64_t visible = MinOf(kAttentionKeys, num_slots - begin);
    Scores(begin, visible);
    Softmax(begin, visible);
    Values(begin, visible);
  }
  if (task.weights != nullptr) FinishWeights();
  StoreOutputs();
}

// The head dimensions of OPT have code of their own.
template <DType kKv>
void DecodeUncoded(const DecodeTask& task) {
  if (task.args->head_dim == 64) return Decode<kKv, 16, 64>(task).Execute();
  if (task.args->head_dim == 80) return Decode<kKv, 16, 80>(task).Execute();
  if (task.args->head_dim == 128) return Decode<kKv, 16, 128>(task).Execute();
  Decode<kKv, 16, 0>(task).Execute();
}

inline void DecodeSimd(const DecodeTask& task) {
  if (task.args->kv_bits == 8) return Decode<DType::kF16, 8, 0>(task).Execute();
  if (task.args->kv_bits == 4) return Decode<DType::kF16, 4, 0>(task).Execute();
  task.args->kv_dtype == DType::kF16 ? DecodeUncoded<DType::kF16>(task)
                                     : DecodeUncoded<DType::kBF16>(task);
}

}  // namespace
}  // namespace spillway::kernels
