// Body of DecodeTask (attention_isa.h), compiled once per instruction set. A query's output has the
// same bits as that of Attend in attention_simd.h; only the order in which heads and slots are
// visited differs: it follows the layout of the cache.
#pragma once

#include "kernels/attention/attention_simd.h"
#include "kernels/attention/decode_part_simd.h"
#include "kernels/attention/shared_run_simd.h"
#include "kernels/kv/code_query_simd.h"

namespace spillway::kernels {
namespace {

// One DecodeTask. Form: a CacheForm. kDim: as in DecodePart.
template <typename Form, int64_t kDim>
struct Decode : DecodeFrame {
  static constexpr int64_t kBlockSlots = Form::kBlockSlots;
  static constexpr int64_t kStepBlocks = kStep / kBlockSlots;
  using Keys = DecodePart<Form, false, kDim>;
  using Added = DecodePart<Form, true, kDim>;

  Keys keys;
  Added values;

  explicit Decode(const DecodeTask& decode_task)
      : DecodeFrame(decode_task), keys(*this), values(*this) {}
  Decode(const Decode&) = delete;
  // A query's scores in the current block of 64 slots, and its weights in the block at `begin`.
  // Where the task asks for no weights, they overwrite the scores.
  float* ScoresOf(int64_t query) const { return block_scores + query * kAttentionKeys; }
  float* WeightsOf(int64_t query, int64_t begin) const {
    if (task.weights == nullptr) return ScoresOf(query);
    return task.weights + begin * num_queries + query * kAttentionKeys;
  }
  float* FactorsOf(int64_t begin) const {
    return task.factors + begin / kAttentionKeys * kDecodeQueries;
  }
  // A step of keys or of values. kNextTask: the first of the next task.
  struct StepPlace {
    bool of_values;
    int64_t slot;
  };
  static constexpr int64_t kNextTask = -1;
  StepPlace far_step = {false, 0};  // steps_ahead steps after the one that is read
  StepPlace After(const StepPlace& at) const;
  NextRun RunOf(const StepPlace& at) const;  // the first head's
  // First heads' runs in the step after, and in one some steps after. Requires: called once for
  // each step, in their order.
  NextRuns RunsAfter(const StepPlace& at);
  void FetchState(int64_t visit, int64_t slot) const;
  // Means of the keys of a step, which is a block of codes.
  BlockMeans MeansAt(int64_t visit, int64_t slot) const {
    return MeansOf(args, BlockOf(row, slot, kBlockSlots, task.block_bytes),
                   args.num_kv_heads * (keys.run_bytes() + values.run_bytes()),
                   task.kv_head_begin + keys.HeadOf(visit), slot, task.has_state);
  }
  // True: queries meet the codes of keys as whole numbers.
  bool HasNumbers() const { return Keys::kBits < 16 && !args.turns.exist(); }
  CodeQuery NumbersOf(int64_t query) const {
    return {numbers + query * KvQueryFloats(keys.dim()), KvGroups(keys.dim())};
  }
  void LoadQueries() const;
  // Scores of `count` slots of a step for the visit's queries, from `query` on, to `to`,
  // [query][kAttentionKeys].
  void ScoreCodes(const typename Keys::Step& step, int64_t visit, int64_t count, int64_t query,
                  float* to) const;
  void ScoreInPlace(const typename Keys::Step& step, int64_t count, const float* of_query,
                    float* to) const;
  void ScoreShared(const typename Keys::Step& step, int64_t count, const float* of_queries,
                   float* to) const;
  template <int kQueries>
  void ScoreQueries(int64_t count, const float* of_queries, float* to, LinesAhead& ahead) const;
  void Scores(int64_t begin);
  void Softmax(int64_t begin) const;
  void AddInPlace(const typename Added::Step& step, int64_t count, const ValueArgs& add) const;
  void AddShared(const typename Added::Step& step, int64_t count, const ValueArgs& add) const;
  void Values(int64_t begin);
  void FinishFactors() const;
  void StoreOutputs() const;

  int64_t Visible(int64_t begin) const { return MinOf(kAttentionKeys, num_slots - begin); }
  void Attend();
};

// The queries' heads lie side by side, and so do their outputs.
template <typename Form, int64_t kDim>
void Decode<Form, kDim>::LoadQueries() const {
  const float* from =
      args.q + row.token_offset * args.qkv_stride + task.kv_head_begin * group * args.head_dim;
  for (int64_t query = 0; query < num_queries; ++query, from += args.head_dim)
    LoadQuery(from, args.scale, args.head_dim, padded_dim, q + query * padded_dim,
              sums + query * padded_dim);
  if constexpr (Keys::kBits < 16) {
    if (HasNumbers()) {
      for (int64_t query = 0; query < num_queries; ++query)
        RoundQuery<Keys::kBits>(q + query * padded_dim, args.head_dim, NumbersOf(query));
    }
  }
  for (int64_t query = 0; query < kDecodeQueries; ++query) {
    const bool is_there = query < num_queries;
    const SoftmaxStart start =
        is_there ? StartOf(args, task.kv_head_begin * group + query) : SoftmaxStart{};
    maxima[query] = start.maximum;
    totals[query] = start.total;
  }
}

template <typename Form, int64_t kDim>
typename Decode<Form, kDim>::StepPlace Decode<Form, kDim>::After(const StepPlace& at) const {
  if (at.slot == kNextTask) return at;
  const int64_t begin = at.slot / kAttentionKeys * kAttentionKeys;
  const int64_t end = MinOf(begin + kAttentionKeys, num_slots);
  if (at.slot + kStep < end) return {at.of_values, at.slot + kStep};
  if (!at.of_values) return {true, begin};
  return {false, end < num_slots ? end : kNextTask};
}

template <typename Form, int64_t kDim>
NextRun Decode<Form, kDim>::RunOf(const StepPlace& at) const {
  if (at.slot == kNextTask) return {task.next_keys, keys.run_bytes(), keys.part_bytes};
  return at.of_values ? values.NextAt(at.slot) : keys.NextAt(at.slot);
}

template <typename Form, int64_t kDim>
NextRuns Decode<Form, kDim>::RunsAfter(const StepPlace& at) {
  far_step = After(far_step);
  return {RunOf(After(at)), RunOf(far_step)};
}

// Prefetches the scores and positions of a step's slots, which lie behind the values and are
// updated when all weights are known. Spread over the visits, since a burst of requests would fill
// the line buffers.
template <typename Form, int64_t kDim>
inline __attribute__((always_inline)) void Decode<Form, kDim>::FetchState(int64_t visit,
                                                                          int64_t slot) const {
  constexpr int64_t kHeadBytes = kBlockSlots * 4;
  const int64_t tokens = args.num_kv_heads * (keys.run_bytes() + values.run_bytes());
  const std::byte* at = row.kv + slot / kBlockSlots * task.block_bytes + tokens +
                        (task.kv_head_begin + values.HeadOf(visit)) * kHeadBytes;
  for (int64_t i = 0; i < kStepBlocks; ++i, at += task.block_bytes) {
    if (task.weights != nullptr) Fetch(at, 64);
    Fetch(at + args.num_kv_heads * kHeadBytes, 64);
  }
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::ScoreCodes(const typename Keys::Step& step, int64_t visit, int64_t count,
                                    int64_t query, float* to) const {
  if constexpr (Keys::kBits < 16) {
    const auto coded = keys.Coded(step);
    const int64_t floats = KvQueryFloats(keys.dim());
    for (int64_t at = 0; at < count; at += kLanes) {
      if (keys.shares) {
        DotsOf({NumbersOf(query), group, floats, to + at, kAttentionKeys}, coded, at);
      } else {
        Simd::Store(to + at, Dots(NumbersOf(query), coded, at));
      }
      if (!FinishesScores(args)) continue;
      const int64_t queries = keys.shares ? group : 1;
      FinishScores(MeansAt(visit, step.slot), at, count,
                   {queries, q + query * padded_dim, to + at});
    }
  }
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::ScoreInPlace(const typename Keys::Step& step, int64_t count,
                                      const float* of_query, float* to) const {
  if constexpr (Keys::kBits == 16) {
    for (int64_t at = 0; at < count; at += kLanes)
      Simd::Store(to + at, SoftCapped(Dots(of_query, keys.RunsAt(step, at)), args.soft_cap));
  }
}

template <typename Form, int64_t kDim>
template <int kQueries>
void Decode<Form, kDim>::ScoreQueries(int64_t count, const float* of_queries, float* to,
                                      LinesAhead& ahead) const {
  for (int64_t at = 0; at < count; at += kLanes) {
    Simd::F dots[kQueries];
    SharedDots<kQueries>{of_queries, run + at * padded_dim, padded_dim, keys.dim()}.Find(dots,
                                                                                         ahead);
#pragma GCC unroll 8
    for (int query = 0; query < kQueries; ++query)
      Simd::Store(to + query * kAttentionKeys + at, SoftCapped(dots[query], args.soft_cap));
  }
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::ScoreShared(const typename Keys::Step& step, int64_t count,
                                     const float* of_queries, float* to) const {
  keys.Widen(step, count);
  if (args.turns.exist()) TurnKeys(args.turns, task.turn_rows, step.slot, count, run, padded_dim);
  LinesAhead ahead = keys.RunAhead(step, group / 2);
  int64_t query = 0;
  for (; query + 2 <= group; query += 2)
    ScoreQueries<2>(count, of_queries + query * padded_dim, to + query * kAttentionKeys, ahead);
  if (query < group)
    ScoreQueries<1>(count, of_queries + query * padded_dim, to + query * kAttentionKeys, ahead);
}

// Lanes past the last slot hold meaningless scores; Softmax replaces them.
template <typename Form, int64_t kDim>
void Decode<Form, kDim>::Scores(int64_t begin) {
  const int64_t visible = Visible(begin);
  const int64_t queries = keys.shares ? group : 1;  // of a visit
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const int64_t count = MinOf(kStep, visible - slot);
    const NextRuns next = RunsAfter({false, begin + slot});
    for (int64_t visit = 0; visit < keys.num_visits; ++visit) {
      const auto step = keys.StepAt(visit, begin + slot, next);
      const int64_t query = visit * queries;
      const float* of_query = q + query * padded_dim;
      float* to = ScoresOf(query) + slot;
      if (HasNumbers()) {
        ScoreCodes(step, visit, count, query, to);
      } else {
        keys.shares ? ScoreShared(step, count, of_query, to)
                    : ScoreInPlace(step, count, of_query, to);
      }
    }
  }
}

// Runs each step for all queries before the next step: for a single query the steps are a chain of
// latencies.
template <typename Form, int64_t kDim>
void Decode<Form, kDim>::Softmax(int64_t begin) const {
  const int64_t visible = Visible(begin);
  for (int64_t query = 0; query < kDecodeQueries; ++query) rescales[query] = 0;
  for (int64_t query = 0; query < num_queries; ++query) {
    const float maximum = HighestScore(ScoresOf(query), {0, visible}, maxima[query]);
    rescales[query] = maxima[query] - maximum;
    maxima[query] = maximum;
    if (task.weights != nullptr) FactorsOf(begin)[query] = maximum;  // until all maxima are known
  }
  for (int64_t query = 0; query < num_queries; query += kLanes)
    Simd::Store(rescales + query, Exp(Simd::Load(rescales + query)));
  for (int64_t query = 0; query < num_queries; ++query) {
    const float total =
        WeighScores(ScoresOf(query), {0, visible}, maxima[query], WeightsOf(query, begin));
    totals[query] = totals[query] * rescales[query] + total;
  }
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::AddInPlace(const typename Added::Step& step, int64_t count,
                                    const ValueArgs& add) const {
  if constexpr (Added::kBits < 16) {
    const float factor = add.factors == nullptr ? 1.0F : *add.factors;
    MulValues(values.Coded(step), count, add.weights, factor, add.sums);
  } else {
    const float* factor = add.factors;
    for (int64_t at = 0; at < count; at += kLanes, factor = nullptr)
      AddAllValues({MinOf(kLanes, count - at), add.weights + at, factor, add.sums},
                   values.RunsAt(step, at));
  }
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::AddShared(const typename Added::Step& step, int64_t count,
                                   const ValueArgs& add) const {
  if constexpr (Added::kBits < 16 && kCodedValueQueries > 0) {
    if (group <= 2 * kCodedValueQueries) return AddCodedValues(values.Coded(step), add, group);
  }
  LinesAhead ahead = values.RunAhead(step, 2 * ValueParts(group));
  if constexpr (Added::kBits == 16 && kLanes >= 8) {
    const ValueRun<Added::kKv, kBlockSlots, kDim> at = {step.run, task.block_bytes, args.head_dim};
    return AddRunValues(at, add, group, ahead);
  }
  values.Widen(step, count);
  AddSharedValues(add, group, padded_dim, ahead);
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::Values(int64_t begin) {
  const int64_t visible = Visible(begin);
  const int64_t queries = values.shares ? group : 1;  // of a visit
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const int64_t count = MinOf(kStep, visible - slot);
    const NextRuns next = RunsAfter({true, begin + slot});
    for (int64_t visit = 0; visit < values.num_visits; ++visit) {
      const auto step = values.StepAt(visit, begin + slot, next);
      if (task.has_state) FetchState(visit, begin + slot);
      const int64_t query = visit * queries;
      const ValueArgs add = {{run, padded_dim},
                             0,
                             count,
                             WeightsOf(query, begin) + slot,
                             slot == 0 ? rescales + query : nullptr,
                             sums + query * padded_dim,
                             padded_dim};
      values.shares ? AddShared(step, count, add) : AddInPlace(step, count, add);
    }
  }
}

// Rescales each block's factors from its maximum to the maximum over all slots, and divides them by
// the totals. Weights of equal scores in two blocks may end up some ulps apart, where the maximum
// grew between them; an AttentionTask computes each exp again instead.
template <typename Form, int64_t kDim>
void Decode<Form, kDim>::FinishFactors() const {
  for (int64_t query = 0; query < num_queries; query += kLanes) {
    const Simd::F maximum = Simd::Load(maxima + query);
    const Simd::F inverse = Simd::Div(Simd::Set(1.0F), Simd::Load(totals + query));
    for (int64_t begin = 0; begin < num_slots; begin += kAttentionKeys) {
      float* of_block = FactorsOf(begin) + query;
      Simd::Store(of_block, Simd::Mul(Exp(Simd::Sub(Simd::Load(of_block), maximum)), inverse));
    }
  }
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::StoreOutputs() const {
  float* to =
      args.out + row.token_offset * args.out_stride + task.kv_head_begin * group * args.head_dim;
  for (int64_t query = 0; query < num_queries; ++query, to += args.head_dim)
    StoreOutput(sums + query * padded_dim, totals[query], args.head_dim, to);
}

template <typename Form, int64_t kDim>
void Decode<Form, kDim>::Attend() {
  LoadQueries();
  for (int64_t step = 1; step < steps_ahead; ++step) far_step = After(far_step);
  for (int64_t begin = 0; begin < num_slots; begin += kAttentionKeys) {
    Scores(begin);
    Softmax(begin);
    Values(begin);
  }
  if (task.weights != nullptr) FinishFactors();
  StoreOutputs();
}

// Heads of the usual dimensions have code of their own.
template <typename Form>
void DecodeForm(const DecodeTask& task) {
  const int64_t head_dim = task.args->head_dim;
  if (head_dim == 64) return Decode<Form, 64>(task).Attend();
  if (head_dim == 128) return Decode<Form, 128>(task).Attend();
  if constexpr (!Form::kBoth.coded()) {
    if (head_dim == 80) return Decode<Form, 80>(task).Attend();
  }
  Decode<Form, 0>(task).Attend();
}

inline void DecodeSimd(const DecodeTask& task) {
  WithForm(*task.args, [&](auto form) { DecodeForm<decltype(form)>(task); });
}

}  // namespace
}  // namespace spillway::kernels
