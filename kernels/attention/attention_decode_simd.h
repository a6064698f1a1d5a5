// Body of DecodeTask (attention_isa.h), compiled once per instruction set. A query's output has the
// same bits as that of Attend in attention_simd.h; only the order in which heads and slots are
// visited differs: it follows the layout of the cache.
#pragma once

#include "kernels/attention/attention_simd.h"
#include "kernels/attention/shared_run_simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kStep = kDecodeStep;
static_assert(kStep % kLanes == 0 && kStep % kKvCodedBlockSlots == 0 && kStep % kKvBlockSlots == 0);
static_assert(kAttentionKeys % kStep == 0);

// Largest group whose queries read a run in place, each for itself. Those of a larger one share a
// copy of it, widened to fp32.
constexpr int64_t kInPlaceQueries = 2;

// One DecodeTask. A step's runs are visited one after the other: once for all queries of a KV head,
// or once for each of them where they read in place. kBits below 16: the cache holds codes, and kKv
// and kDim are not used. kDim: head_dim where it is known at compile time, else 0.
template <DType kKv, int kBits, int64_t kDim>
struct Decode {
  static constexpr int64_t kBlockSlots = KvBlockSlots(kBits);
  static constexpr int64_t kStepBlocks = kStep / kBlockSlots;

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
  float* q;             // [query][padded_dim], scaled
  float* sums;          // [query][padded_dim]
  float* run;           // [16][padded_dim]: keys or values that a group shares, widened
  float* block_scores;  // [query][64]
  float* ranges;        // [group][16][min, scale] of a KV block of codes
  float* maxima;        // [query]
  float* totals;        // [query]
  float* rescales;      // [query]: what the sums of the slots so far are multiplied by
  bool shares;          // a group of queries shares a widened run
  int64_t num_visits;   // of a step
  int64_t heads_ahead;  // from the run that is read to the one prefetched in its block
  int64_t part_bytes;   // of the next step's runs, prefetched in a visit

  explicit Decode(const DecodeTask& decode_task);
  // Divides by a constant, since this runs for each run of keys and of values.
  static_assert(kInPlaceQueries == 2);
  int64_t HeadOf(int64_t visit) const { return num_visits == num_heads ? visit : visit / 2; }
  int64_t KvHeadOf(int64_t visit) const { return task.kv_head_begin + HeadOf(visit); }
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
  // Bytes of one head's keys, or values, in a KV block.
  int64_t run_bytes() const { return kBlockSlots * (kDim > 0 ? 2 * kDim : token_bytes); }
  // Keys, or values, of the visit's KV head in the KV block of `slot`.
  const std::byte* Run(bool values, int64_t visit, int64_t slot) const {
    const int64_t head = (values ? args.num_kv_heads : 0) + KvHeadOf(visit);
    return row.kv + slot / kBlockSlots * task.block_bytes + head * run_bytes();
  }
  // The keys, or the values, of kStep slots of one KV head, which are read before the next head's.
  struct Step {
    const std::byte* run;
    int64_t slot;
    int64_t ahead[kStepBlocks];  // of each block: bytes from what is read to what is prefetched
  };
  // First head's run in the step after the one at `slot`; after the last step, in the next task's
  // first. Null: there is none.
  const std::byte* NextStep(bool values, int64_t slot) const;
  Step StepAt(bool values, int64_t visit, int64_t slot, const std::byte* next) const;
  void FetchPart(int64_t visit, const std::byte* next) const;
  Step AheadInBlock(const Step& step, int64_t visit, const std::byte* next) const;
  Step AheadInTurn(const Step& step, int64_t visit, const std::byte* next) const;
  CodedBlock<kBits> Coded(const Step& step) const;
  TokenRuns<kKv, kDim> RunsAt(const Step& step, int64_t at) const;  // of kLanes slots
  void Widen(const Step& step, int64_t count) const;
  LinesAhead RunAhead(const Step& step, int64_t rounds) const;
  void FetchState(int64_t visit, int64_t slot) const;
  void LoadQueries() const;
  // Scores of `count` slots of a step, to `to`, [query][kAttentionKeys].
  void ScoreInPlace(const Step& step, int64_t count, const float* of_query, float* to) const;
  void ScoreShared(const Step& step, int64_t count, const float* of_queries, float* to) const;
  template <int kQueries>
  void ScoreQueries(int64_t count, const float* of_queries, float* to, LinesAhead& ahead) const;
  void Scores(int64_t begin) const;
  void Softmax(int64_t begin) const;
  void AddInPlace(const Step& step, int64_t count, const ValueArgs& add) const;
  void AddShared(const Step& step, int64_t count, const ValueArgs& add) const;
  void Values(int64_t begin) const;
  void FinishFactors() const;
  void StoreOutputs() const;

  int64_t Visible(int64_t begin) const { return MinOf(kAttentionKeys, num_slots - begin); }
  void Attend() const;
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
      q(task.scratch),
      sums(q + kDecodeQueries * padded_dim),
      run(sums + kDecodeQueries * padded_dim),
      block_scores(run + kStep * padded_dim),
      ranges(block_scores + kDecodeQueries * kAttentionKeys),
      maxima(ranges + 2 * kKvCodedBlockSlots * KvGroups(args.head_dim)),
      totals(maxima + kDecodeQueries),
      rescales(totals + kDecodeQueries),
      shares(group > kInPlaceQueries),
      num_visits(shares ? num_heads : num_queries),
      heads_ahead(
          MinOf(num_heads, MaxOf(1, (shares ? kSharedAheadBytes : kAheadBytes) / run_bytes()))),
      part_bytes(MinOf(kNextStepBytes<kBits>, num_heads * run_bytes() / 2) / num_visits) {}

// The queries' heads lie side by side, and so do their outputs.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::LoadQueries() const {
  const float* from =
      args.q + row.token_offset * args.qkv_stride + task.kv_head_begin * group * args.head_dim;
  for (int64_t query = 0; query < num_queries; ++query, from += args.head_dim)
    LoadQuery(from, args.scale, args.head_dim, padded_dim, q + query * padded_dim,
              sums + query * padded_dim);
  for (int64_t query = 0; query < kDecodeQueries; ++query) {
    maxima[query] = kMinusInfinity;
    totals[query] = 0;
  }
}

template <DType kKv, int kBits, int64_t kDim>
const std::byte* Decode<kKv, kBits, kDim>::NextStep(bool values, int64_t slot) const {
  const int64_t begin = slot / kAttentionKeys * kAttentionKeys;
  const int64_t end = MinOf(begin + kAttentionKeys, num_slots);
  if (slot + kStep < end) return Run(values, 0, slot + kStep);
  if (!values) return Run(true, 0, begin);
  return end < num_slots ? Run(false, 0, end) : task.next_keys;
}

// Prefetches a visit's part of the next step.
template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) void Decode<kKv, kBits, kDim>::FetchPart(
    int64_t visit, const std::byte* next) const {
  const std::byte* part = next + visit * part_bytes;
  for (int64_t i = 0; i < kStepBlocks; ++i) FetchNear(part + i * task.block_bytes, part_bytes);
}

template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) typename Decode<kKv, kBits, kDim>::Step
Decode<kKv, kBits, kDim>::StepAt(bool values, int64_t visit, int64_t slot,
                                 const std::byte* next) const {
  if (next != nullptr && (!shares || kBits < 16)) FetchPart(visit, next);
  const Step step = {Run(values, visit, slot), slot, {}};
  return kFetchOther<kBits> && !shares ? AheadInTurn(step, visit, next)
                                       : AheadInBlock(step, visit, next);
}

// Sets the prefetch distance: heads_ahead runs further on in each block; behind a block's last
// head, in the next step's.
template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) typename Decode<kKv, kBits, kDim>::Step
Decode<kKv, kBits, kDim>::AheadInBlock(const Step& step, int64_t visit,
                                       const std::byte* next) const {
  const int64_t beyond = HeadOf(visit) + heads_ahead - num_heads;
  int64_t ahead = 0;
  if (beyond < 0) {
    ahead = heads_ahead * run_bytes();
  } else if (next != nullptr) {
    ahead = BytesBetween(step.run, next) + beyond * run_bytes();
  }
  Step result = step;
  for (int64_t& of_block : result.ahead) of_block = ahead;
  return result;
}

// Sets the prefetch distance to the run that is read next: the same head's in the step's next
// block, where the row has one; after it the next head's in the first block, or the next step's.
template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) typename Decode<kKv, kBits, kDim>::Step
Decode<kKv, kBits, kDim>::AheadInTurn(const Step& step, int64_t visit,
                                      const std::byte* next) const {
  const bool has_next_head = HeadOf(visit) + 1 < num_heads;
  const std::byte* then = has_next_head ? step.run + run_bytes() : next;
  Step result = step;
  for (int64_t i = 0; i < kStepBlocks; ++i) {
    const bool is_last = i + 1 == kStepBlocks || step.slot + (i + 1) * kBlockSlots >= num_slots;
    const int64_t to_then =
        then == nullptr ? 0 : BytesBetween(step.run + i * task.block_bytes, then);
    result.ahead[i] = is_last ? to_then : task.block_bytes;
  }
  return result;
}

template <DType kKv, int kBits, int64_t kDim>
CodedBlock<kBits> Decode<kKv, kBits, kDim>::Coded(const Step& step) const {
  const auto* from = reinterpret_cast<const uint16_t*>(step.run + kBlockSlots * code_bytes);
  const int64_t floats = kBlockSlots * 2 * KvGroups(args.head_dim);
  for (int64_t i = 0; i < floats; i += kLanes) Simd::Store(ranges + i, Simd::LoadHalf(from + i));
  return {step.run, ranges, args.head_dim, task.block_bytes, step.ahead[0]};
}

template <DType kKv, int kBits, int64_t kDim>
TokenRuns<kKv, kDim> Decode<kKv, kBits, kDim>::RunsAt(const Step& step, int64_t at) const {
  const int64_t block = at / kBlockSlots;
  return {step.run + block * task.block_bytes,
          step.slot + at,
          {task.block_bytes, row.num_slots, args.head_dim},
          step.ahead[block]};
}

// Prefetches the scores and positions of a step's slots, which lie behind the values and are
// updated when all weights are known. Spread over the visits, since a burst of requests would fill
// the line buffers.
template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) void Decode<kKv, kBits, kDim>::FetchState(
    int64_t visit, int64_t slot) const {
  constexpr int64_t kHeadBytes = kBlockSlots * 4;
  const std::byte* at = row.kv + slot / kBlockSlots * task.block_bytes +
                        2 * args.num_kv_heads * run_bytes() + KvHeadOf(visit) * kHeadBytes;
  for (int64_t i = 0; i < kStepBlocks; ++i, at += task.block_bytes) {
    if (task.weights != nullptr) Fetch(at, 64);
    Fetch(at + args.num_kv_heads * kHeadBytes, 64);
  }
}

// Runs that are prefetched while a step's queries are computed, in so many rounds of a quarter of
// its lines.
template <DType kKv, int kBits, int64_t kDim>
LinesAhead Decode<kKv, kBits, kDim>::RunAhead(const Step& step, int64_t rounds) const {
  if (kBits < 16 || step.ahead[0] == 0) return {};
  const std::byte* first = step.run + step.ahead[0];
  return {first, first + run_bytes(), first + task.block_bytes, run_bytes(), rounds < 4};
}

// Widens a step's first slots into `run`.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Widen(const Step& step, int64_t count) const {
  if constexpr (kBits < 16) {
    const CodedBlock<kBits> coded = Coded(step);
    for (int64_t slot = 0; slot < count; ++slot) {
      coded.FetchAhead(slot);
      DecodeSlot(coded, slot, padded_dim, run + slot * padded_dim);
    }
    return;
  }
  const int64_t dim = kDim > 0 ? kDim : args.head_dim;
  float* to = run;
  for (int64_t slot = 0; slot < count; ++slot, to += padded_dim) {
    const int64_t block = slot / kBlockSlots;
    const std::byte* from = step.run + block * task.block_bytes + slot % kBlockSlots * code_bytes;
    WidenToken<kKv>(from, dim, padded_dim, to);
  }
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::ScoreInPlace(const Step& step, int64_t count, const float* of_query,
                                            float* to) const {
  if constexpr (kBits < 16) {
    const CodedBlock<kBits> keys = Coded(step);
    for (int64_t at = 0; at < kStep; at += kLanes)
      Simd::Store(to + at, SoftCapped(Dots(of_query, keys, at, args.head_dim), args.soft_cap));
  } else {
    for (int64_t at = 0; at < count; at += kLanes)
      Simd::Store(to + at, SoftCapped(Dots(of_query, RunsAt(step, at)), args.soft_cap));
  }
}

template <DType kKv, int kBits, int64_t kDim>
template <int kQueries>
void Decode<kKv, kBits, kDim>::ScoreQueries(int64_t count, const float* of_queries, float* to,
                                            LinesAhead& ahead) const {
  for (int64_t at = 0; at < count; at += kLanes) {
    Simd::F dots[kQueries];
    SharedDots<kQueries>{of_queries, run + at * padded_dim, padded_dim, args.head_dim}.Find(dots,
                                                                                            ahead);
#pragma GCC unroll 8
    for (int query = 0; query < kQueries; ++query)
      Simd::Store(to + query * kAttentionKeys + at, SoftCapped(dots[query], args.soft_cap));
  }
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::ScoreShared(const Step& step, int64_t count, const float* of_queries,
                                           float* to) const {
  Widen(step, count);
  LinesAhead ahead = RunAhead(step, group / 2);
  int64_t query = 0;
  for (; query + 2 <= group; query += 2)
    ScoreQueries<2>(count, of_queries + query * padded_dim, to + query * kAttentionKeys, ahead);
  if (query < group)
    ScoreQueries<1>(count, of_queries + query * padded_dim, to + query * kAttentionKeys, ahead);
}

// Lanes past the last slot hold meaningless scores; Softmax replaces them.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Scores(int64_t begin) const {
  const int64_t visible = Visible(begin);
  const int64_t queries = shares ? group : 1;  // of a visit
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const int64_t count = MinOf(kStep, visible - slot);
    const std::byte* next = NextStep(false, begin + slot);
    for (int64_t visit = 0; visit < num_visits; ++visit) {
      const Step step = StepAt(false, visit, begin + slot, next);
      const float* of_query = q + visit * queries * padded_dim;
      float* to = ScoresOf(visit * queries) + slot;
      shares ? ScoreShared(step, count, of_query, to) : ScoreInPlace(step, count, of_query, to);
    }
  }
}

// Runs each step for all queries before the next step: for a single query the steps are a chain of
// latencies.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Softmax(int64_t begin) const {
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

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::AddInPlace(const Step& step, int64_t count,
                                          const ValueArgs& add) const {
  if constexpr (kBits < 16) {
    const float factor = add.factors == nullptr ? 1.0F : *add.factors;
    MulValues(Coded(step), count, add.weights, factor, add.sums);
  } else {
    const float* factor = add.factors;
    for (int64_t at = 0; at < count; at += kLanes, factor = nullptr)
      AddAllValues({MinOf(kLanes, count - at), add.weights + at, factor, add.sums},
                   RunsAt(step, at));
  }
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::AddShared(const Step& step, int64_t count,
                                         const ValueArgs& add) const {
  Widen(step, count);
  LinesAhead ahead = RunAhead(step, 2 * ValueParts(group));
  AddSharedValues(add, group, padded_dim, ahead);
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Values(int64_t begin) const {
  const int64_t visible = Visible(begin);
  const int64_t queries = shares ? group : 1;  // of a visit
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const int64_t count = MinOf(kStep, visible - slot);
    const std::byte* next = NextStep(true, begin + slot);
    for (int64_t visit = 0; visit < num_visits; ++visit) {
      const Step step = StepAt(true, visit, begin + slot, next);
      if (task.has_state) FetchState(visit, begin + slot);
      const int64_t query = visit * queries;
      const ValueArgs add = {{run, padded_dim},
                             0,
                             count,
                             WeightsOf(query, begin) + slot,
                             slot == 0 ? rescales + query : nullptr,
                             sums + query * padded_dim,
                             padded_dim};
      shares ? AddShared(step, count, add) : AddInPlace(step, count, add);
    }
  }
}

// Rescales each block's factors from its maximum to the maximum over all slots, and divides them by
// the totals. Weights of equal scores in two blocks may end up some ulps apart, where the maximum
// grew between them; an AttentionTask computes each exp again instead.
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
  for (int64_t query = 0; query < num_queries; ++query, to += args.head_dim)
    StoreOutput(sums + query * padded_dim, totals[query], args.head_dim, to);
}

template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Attend() const {
  LoadQueries();
  for (int64_t begin = 0; begin < num_slots; begin += kAttentionKeys) {
    Scores(begin);
    Softmax(begin);
    Values(begin);
  }
  if (task.weights != nullptr) FinishFactors();
  StoreOutputs();
}

// The head dimensions of OPT have code of their own.
template <DType kKv>
void DecodeUncoded(const DecodeTask& task) {
  const int64_t head_dim = task.args->head_dim;
  if (head_dim == 64) return Decode<kKv, 16, 64>(task).Attend();
  if (head_dim == 80) return Decode<kKv, 16, 80>(task).Attend();
  if (head_dim == 128) return Decode<kKv, 16, 128>(task).Attend();
  Decode<kKv, 16, 0>(task).Attend();
}

inline void DecodeSimd(const DecodeTask& task) {
  const AttentionArgs& args = *task.args;
  if (args.kv_bits == 8) return Decode<DType::kF16, 8, 0>(task).Attend();
  if (args.kv_bits == 4) return Decode<DType::kF16, 4, 0>(task).Attend();
  args.kv_dtype == DType::kF16 ? DecodeUncoded<DType::kF16>(task)
                               : DecodeUncoded<DType::kBF16>(task);
}

}  // namespace
}  // namespace spillway::kernels
