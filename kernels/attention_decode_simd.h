// The body of a DecodeTask, compiled once per instruction set. In a query's output there is no
// difference to Attend of attention_simd.h, and none in its bits; the order in which the heads and
// their slots are met follows the cache.
#pragma once

#include "kernels/attention_simd.h"

namespace spillway::kernels {
namespace {

// From a head's run in a KV block to the one in the same block that is fetched meanwhile; with 16
// lanes two blocks are read at a time, and twice as much lies between. Measured in turns, heads of
// 64 in 16 bits, at 1 to 16 KiB: 2 KiB are best while memory is quick, and far too few while others
// use it; from 6 KiB on rates fall.
constexpr int64_t kAheadBytes = 3072;

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
  int64_t code_bytes;   // of a token's K or V
  int64_t token_bytes;  // of the same, min and scale included
  int64_t heads_ahead;  // from the run that is read to the one that is fetched
  float* q;             // [query][padded_dim], scaled
  float* sums;          // [query][padded_dim]
  float* block_scores;  // [query][64]
  float* ranges;        // [group][16][min, scale] of a KV block of codes
  float* maxima;        // [query]
  float* totals;        // [query]
  float* factors;       // [query]: what the sums so far are multiplied by in this block

  explicit Decode(const DecodeTask& decode_task);
  // A division by what the compiler knows: there is one for each run of keys and of values.
  static_assert(kDecodeGroup == 2);
  int64_t HeadOf(int64_t query) const { return group == 1 ? query : query / 2; }
  int64_t KvHeadOf(int64_t query) const { return task.kv_head_begin + HeadOf(query); }
  // Of the block of 64 slots at `begin`; where weights are not wanted they take the scores' place.
  float* ScoresOf(int64_t query) const { return block_scores + query * kAttentionKeys; }
  float* WeightsOf(int64_t query, int64_t begin) const {
    if (task.weights == nullptr) return ScoresOf(query);
    return task.weights + query * task.weights_stride + begin;
  }
  float* FactorsOf(int64_t begin) const {
    return task.factors + begin / kAttentionKeys * kDecodeQueries;
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
  void FinishFactors() const;
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
      block_scores(sums + kDecodeQueries * padded_dim),
      ranges(block_scores + kDecodeQueries * kAttentionKeys),
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
// the first heads in the step that follows, and behind the last step one of the next task's.
template <DType kKv, int kBits, int64_t kDim>
int64_t Decode<kKv, kBits, kDim>::Ahead(const Step& step, int64_t query) const {
  const int64_t run_bytes = kBlockSlots * token_bytes;
  if (HeadOf(query) + heads_ahead < num_heads) return heads_ahead * run_bytes;
  const int64_t to_first_heads = (heads_ahead - num_heads) * run_bytes;
  const int64_t to_values = args.num_kv_heads * run_bytes;
  const int64_t next_step = kStep / kBlockSlots * task.block_bytes;
  if (step.slot + kStep < step.visible) return to_first_heads + next_step;
  if (!step.values) return to_first_heads + to_values - step.slot / kBlockSlots * task.block_bytes;
  if (step.begin + kAttentionKeys < num_slots) return to_first_heads + next_step - to_values;
  if (task.next_keys == nullptr) return 0;
  const std::byte* run = Run(true, query, step.begin + step.slot);
  const auto to_next = static_cast<int64_t>(reinterpret_cast<uintptr_t>(task.next_keys) -
                                            reinterpret_cast<uintptr_t>(run));
  return to_next + HeadOf(query) * run_bytes + to_first_heads;
}

template <DType kKv, int kBits, int64_t kDim>
CodedBlock<kBits> Decode<kKv, kBits, kDim>::Coded(const Step& step, int64_t query) const {
  const std::byte* run = Run(step.values, query, step.begin + step.slot);
  const auto* from = reinterpret_cast<const uint16_t*>(run + kBlockSlots * code_bytes);
  const int64_t floats = kBlockSlots * 2 * KvGroups(args.head_dim);
  for (int64_t i = 0; i < floats; i += kLanes) Simd::Store(ranges + i, Simd::LoadHalf(from + i));
  return {run, ranges, args.head_dim, task.block_bytes, Ahead(step, query)};
}

template <DType kKv, int kBits, int64_t kDim>
TokenRuns<kKv, kDim> Decode<kKv, kBits, kDim>::RunsAt(const Step& step, int64_t query,
                                                      int64_t at) const {
  const int64_t slot = step.begin + step.slot + at;
  return {Run(step.values, query, slot),
          slot,
          {task.block_bytes, row.num_slots, args.head_dim},
          Ahead(step, query)};
}

// Lanes past the last slot hold a score of nothing; Softmax replaces them.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Scores(int64_t begin, int64_t visible) const {
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    for (int64_t query = 0; query < num_queries; ++query) {
      const Step step = {false, begin, slot, visible};
      const float* of_query = q + query * padded_dim;
      float* to = ScoresOf(query) + slot;
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
    const float maximum = HighestScore(ScoresOf(query), visible, maxima[query]);
    factors[query] = maxima[query] - maximum;
    maxima[query] = maximum;
    if (task.weights != nullptr) FactorsOf(begin)[query] = maximum;  // until all maxima are known
  }
  for (int64_t query = 0; query < num_queries; query += kLanes)
    Simd::Store(factors + query, Exp(Simd::Load(factors + query)));
  for (int64_t query = 0; query < num_queries; ++query) {
    const float total =
        WeighScores(ScoresOf(query), visible, maxima[query], WeightsOf(query, begin));
    totals[query] = totals[query] * factors[query] + total;
  }
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Values(int64_t begin, int64_t visible) const {
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const int64_t count = MinOf(kStep, visible - slot);
    for (int64_t query = 0; query < num_queries; ++query) {
      const Step step = {true, begin, slot, visible};
      const float* weights = WeightsOf(query, begin) + slot;
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

// From a block's maximum to that of all slots. Weights of equal scores in two blocks so end up some
// ulps apart where the maximum grew between them; Attend takes each exp anew.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::FinishFactors() const {
  for (int64_t query = 0; query < num_queries; query += kLanes) {
    const Simd::F maximum = Simd::Load(maxima + query);
    const Simd::F inverse = Simd::Div(Simd::Set(1.0F), Simd::Load(totals + query));
    for (int64_t begin = 0; begin < num_slots; begin += kAttentionKeys) {
      float* of_block = FactorsOf(begin) + query;
      Simd::Store(of_block, Simd::Mul(Exp(Simd::Sub(Simd::Load(of_block), maximum)), inverse));
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
  if (task.weights != nullptr) FinishFactors();
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
