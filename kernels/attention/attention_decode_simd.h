// Body of DecodeTask (attention_isa.h), compiled once per instruction set. A query's output has the
// same bits as that of Attend in attention_simd.h; only the order in which heads and slots are
// visited differs: it follows the layout of the cache.
#pragma once

#include "kernels/attention/attention_simd.h"

namespace spillway::kernels {
namespace {

// Slots of one head that are read before the next head's: two KV blocks at 16 bits, one at 8 and 4.
// Reading two runs of memory in turns is a third faster than reading one (Zen 3, one core), where a
// head has 1 to 2 KiB in each block.
constexpr int64_t kStep = 16;
static_assert(kStep % kLanes == 0 && kStep % kKvCodedBlockSlots == 0 && kStep % kKvBlockSlots == 0);
static_assert(kAttentionKeys % kStep == 0);

// Choice of what is prefetched while a head's run in a KV block is read. True: the run that is read
// next, which lies in the step's other block (measured best on Zen 3). False, with 16 lanes and for
// codes: the bytes kAheadBytes further on in the same block (best on Zen 4).
template <int kBits>
constexpr bool kFetchOther = kLanes < 16 && kBits == 16;

// Prefetch distance within a block, into the second-level cache, as a hint to a processor that
// reads ahead by itself. Prefetches into the first-level cache held up the reads and cost a tenth
// of the rate. Measured with heads of 64 and 128 dimensions in 16 bits, at distances of 1 to 16
// KiB.
constexpr int64_t kAheadBytes = 2048;

// Bytes of each KV block of the next step that are prefetched while this step is read, at most half
// of the block's runs. The next step lies elsewhere in memory, where the processor's own prefetcher
// starts at a third of its rate. Prefetches go into the first-level cache: those into the second
// are dropped where many are under way. Measured likewise, at 4 to 32 KiB on Zen 4, at 0 to 16 KiB
// on Zen 3.
template <int kBits>
constexpr int64_t kNextStepBytes = int64_t{kFetchOther<kBits> ? 8 : 16} << 10;

// One DecodeTask. kBits below 16: the cache holds codes, and kKv and kDim are not used. kDim:
// head_dim where it is known at compile time, else 0.
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
  float* block_scores;  // [query][64]
  float* ranges;        // [group][16][min, scale] of a KV block of codes
  float* maxima;        // [query]
  float* totals;        // [query]
  float* rescales;      // [query]: what the sums of the slots so far are multiplied by
  int64_t heads_ahead;  // from the run that is read to the one prefetched in its block
  int64_t part_bytes;   // of the next step's runs, prefetched while a query's run is read

  explicit Decode(const DecodeTask& decode_task);
  // Divides by a constant, since this runs for each run of keys and of values.
  static_assert(kDecodeGroup == 2);
  int64_t HeadOf(int64_t query) const { return group == 1 ? query : query / 2; }
  int64_t KvHeadOf(int64_t query) const { return task.kv_head_begin + HeadOf(query); }
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
  // Keys, or values, of the query's KV head in the KV block of `slot`.
  const std::byte* Run(bool values, int64_t query, int64_t slot) const {
    const int64_t head = (values ? args.num_kv_heads : 0) + KvHeadOf(query);
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
  Step StepAt(bool values, int64_t query, int64_t slot, const std::byte* next) const;
  void FetchPart(int64_t query, const std::byte* next) const;
  Step AheadInBlock(const Step& step, int64_t query, const std::byte* next) const;
  Step AheadInTurn(const Step& step, int64_t query, const std::byte* next) const;
  CodedBlock<kBits> Coded(const Step& step) const;
  TokenRuns<kKv, kDim> RunsAt(const Step& step, int64_t at) const;  // of kLanes slots

  void FetchState(int64_t query, int64_t slot) const;
  void LoadQueries() const;
  void Scores(int64_t begin) const;
  void Softmax(int64_t begin) const;
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
      block_scores(sums + kDecodeQueries * padded_dim),
      ranges(block_scores + kDecodeQueries * kAttentionKeys),
      maxima(ranges + 2 * kKvCodedBlockSlots * KvGroups(args.head_dim)),
      totals(maxima + kDecodeQueries),
      rescales(totals + kDecodeQueries),
      heads_ahead(MinOf(num_heads, MaxOf(1, kAheadBytes / run_bytes()))),
      part_bytes(MinOf(kNextStepBytes<kBits>, num_heads * run_bytes() / 2) / num_queries) {}

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

// Prefetches a query's part of the next step.
template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) void Decode<kKv, kBits, kDim>::FetchPart(
    int64_t query, const std::byte* next) const {
  const std::byte* part = next + query * part_bytes;
  for (int64_t i = 0; i < kStepBlocks; ++i) FetchNear(part + i * task.block_bytes, part_bytes);
}

inline int64_t BytesBetween(const std::byte* from, const std::byte* to) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
}

template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) typename Decode<kKv, kBits, kDim>::Step
Decode<kKv, kBits, kDim>::StepAt(bool values, int64_t query, int64_t slot,
                                 const std::byte* next) const {
  if (next != nullptr) FetchPart(query, next);
  const Step step = {Run(values, query, slot), slot, {}};
  if constexpr (kFetchOther<kBits>) return AheadInTurn(step, query, next);
  return AheadInBlock(step, query, next);
}

// Sets the prefetch distance: heads_ahead runs further on in each block; behind a block's last
// head, in the next step's.
template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) typename Decode<kKv, kBits, kDim>::Step
Decode<kKv, kBits, kDim>::AheadInBlock(const Step& step, int64_t query,
                                       const std::byte* next) const {
  const int64_t beyond = HeadOf(query) + heads_ahead - num_heads;
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
Decode<kKv, kBits, kDim>::AheadInTurn(const Step& step, int64_t query,
                                      const std::byte* next) const {
  const bool has_next_head = HeadOf(query) + 1 < num_heads;
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
// updated when all weights are known. Spread over the heads, since a burst of requests would fill
// the line buffers.
template <DType kKv, int kBits, int64_t kDim>
inline __attribute__((always_inline)) void Decode<kKv, kBits, kDim>::FetchState(
    int64_t query, int64_t slot) const {
  constexpr int64_t kHeadBytes = kBlockSlots * 4;
  const std::byte* at = row.kv + slot / kBlockSlots * task.block_bytes +
                        2 * args.num_kv_heads * run_bytes() + KvHeadOf(query) * kHeadBytes;
  for (int64_t i = 0; i < kStepBlocks; ++i, at += task.block_bytes) {
    if (task.weights != nullptr) Fetch(at, 64);
    Fetch(at + args.num_kv_heads * kHeadBytes, 64);
  }
}

// Lanes past the last slot hold meaningless scores; Softmax replaces them.
template <DType kKv, int kBits, int64_t kDim>
void Decode<kKv, kBits, kDim>::Scores(int64_t begin) const {
  const int64_t visible = Visible(begin);
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const std::byte* next = NextStep(false, begin + slot);
    for (int64_t query = 0; query < num_queries; ++query) {
      const Step step = StepAt(false, query, begin + slot, next);
      const float* of_query = q + query * padded_dim;
      float* to = ScoresOf(query) + slot;
      if constexpr (kBits < 16) {
        const CodedBlock<kBits> keys = Coded(step);
        for (int64_t at = 0; at < kStep; at += kLanes)
          Simd::Store(to + at, SoftCapped(Dots(of_query, keys, at, args.head_dim), args.soft_cap));
      } else {
        const int64_t count = MinOf(kStep, visible - slot);
        for (int64_t at = 0; at < count; at += kLanes)
          Simd::Store(to + at, SoftCapped(Dots(of_query, RunsAt(step, at)), args.soft_cap));
      }
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
void Decode<kKv, kBits, kDim>::Values(int64_t begin) const {
  const int64_t visible = Visible(begin);
  for (int64_t slot = 0; slot < visible; slot += kStep) {
    const int64_t count = MinOf(kStep, visible - slot);
    const std::byte* next = NextStep(true, begin + slot);
    for (int64_t query = 0; query < num_queries; ++query) {
      const Step step = StepAt(true, query, begin + slot, next);
      if (task.has_state) FetchState(query, begin + slot);
      const float* weights = WeightsOf(query, begin) + slot;
      float* to = sums + query * padded_dim;
      if constexpr (kBits < 16) {
        MulValues(Coded(step), count, weights, slot == 0 ? rescales[query] : 1.0F, to);
      } else {
        const float* rescale = slot == 0 ? rescales + query : nullptr;
        for (int64_t at = 0; at < count; at += kLanes, rescale = nullptr)
          AddAllValues({MinOf(kLanes, count - at), weights + at, rescale, to}, RunsAt(step, at));
      }
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
  for (int64_t query = 0; query < num_queries; ++query, to += args.head_dim) {
    const Simd::F scale = Simd::Set(1.0F / totals[query]);
    for (int64_t d = 0; d < args.head_dim; d += kLanes) {
      Simd::StorePart(to + d, Simd::Mul(scale, Simd::Load(sums + query * padded_dim + d)),
                      MinOf(kLanes, args.head_dim - d));
    }
  }
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
