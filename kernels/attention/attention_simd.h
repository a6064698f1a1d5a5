// Body of AttentionTask, compiled once per instruction set. Order of operations of one query: slots
// are visited in blocks of 64 from slot 0; a score is one register of lanes along head_dim, added
// by the fixed tree; the block's maximum, then exp, then its sum (lanes, then the tree) update the
// running softmax; values are added slot by slot. How many queries share a pass, and whether K and
// V were widened first, changes no bit. Values of 8 and 4 bits are read as min + scale * code
// wherever an element is loaded; keys of them, where no turns are applied, meet queries in whole
// numbers (kernels/kv/code_query_simd.h), and a score is added group by group.
#pragma once

#include "kernels/attention/attention_block_simd.h"
#include "kernels/attention/attention_isa.h"
#include "kernels/attention/cache_form_simd.h"
#include "kernels/attention/kv_store_simd.h"
#include "kernels/attention/token_runs_simd.h"
#include "kernels/kv/code_query_simd.h"
#include "kernels/kv/kv_code_simd.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kAddSlots = kAddVectors * kLanes;
// Numbers of queries from which a block of K or V is widened to fp32 once for all of them.
constexpr int64_t kWidenQueries = 3;
constexpr int64_t kWidenCodedQueries = 2;

static_assert(kKvCodedBlockSlots % kLanes == 0 && kAttentionKeys % kKvCodedBlockSlots == 0);

// Means of the keys of kLanes slots of a KV block, from `at` on; of those from `known` on, whose
// positions are not known, the last one's before it.
inline AddedRows MeanRows(const BlockMeans& means, int64_t at, int64_t known) {
  AddedRows rows;
  for (int64_t i = 0; i < kLanes; ++i) rows.of[i] = means.Of(MinOf(at + i, known - 1));
  return rows;
}

// Queries of one KV head, and their q . k of some keys of codes.
struct CodeScores {
  int64_t count;
  const float* q;  // [query][padded_dim]
  float* scores;   // [query][kAttentionKeys], of kLanes slots
};

// True: scores of keys of codes are not their q . k yet.
inline bool FinishesScores(const AttentionTensors& args) {
  return args.means.exist() || args.soft_cap != 0.0F;
}

// Adds the means of keys to q . k of kLanes slots, and caps them. Slots as those of MeanRows.
// Requires: FinishesScores.
inline void FinishScores(const BlockMeans& means, int64_t at, int64_t known, CodeScores to) {
  const AttentionTensors& args = means.args;
  const bool centres = args.means.exist();
  AddedRows rows;
  if (centres) rows = MeanRows(means, at, known);
  for (; to.count > 0; --to.count) {
    Simd::F dots = Simd::Load(to.scores);
    if (centres) dots = Simd::Add(dots, DotsOfRows(to.q, rows, args.head_dim));
    Simd::Store(to.scores, SoftCapped(dots, args.soft_cap));
    to.q += AttentionPaddedDim(args.head_dim);
    to.scores += kAttentionKeys;
  }
}

// One AttentionTask. Form: a CacheForm.
template <typename Form>
struct Attend {
  static constexpr DType kKv = Form::kDType;
  static constexpr int64_t kBlockSlots = Form::kBlockSlots;
  template <bool kValues>
  static constexpr int kBits = Form::template kBits<kValues>;

  const AttentionTask& task;
  const AttentionArgs& args;
  const AttentionRow& row;
  int64_t kv_head;
  int64_t num_queries;
  int64_t first_query;
  int64_t group;
  int64_t padded_dim;
  int64_t key_run;    // bytes of one head's keys in a KV block
  int64_t value_run;  // and of its values
  float* q;           // [query][padded_dim], scaled
  float* sums;        // [query][padded_dim]
  float* widened;     // [slot][padded_dim]
  float* weights;     // [query][64]: scores, then exp
  float* ranges;      // [KV block][group][16][min, scale] of a block of codes
  float* maxima;      // [query]
  float* totals;      // [query]
  float* factors;     // [query to whole registers]: what the sums are multiplied by in this block
  float* numbers;     // [query][KvQueryFloats]: queries, where they meet keys of codes
  float* history;     // [block][query][64]: the scores, where the task adds weights up

  explicit Attend(const AttentionTask& attention_task);
  int64_t Token(int64_t query) const { return (first_query + query) / group; }
  int64_t Head(int64_t query) const { return kv_head * group + (first_query + query) % group; }
  // Slots of the block at `begin` that the query sees; none when begin >= end.
  SeenSlots Seen(int64_t query, int64_t begin) const {
    const int64_t end = row.num_past + Token(query) + 1 - begin;
    return {args.window == 0 ? 0 : MaxOf(0, end - args.window), MinOf(kAttentionKeys, end)};
  }
  bool Sees(int64_t query, int64_t begin) const {
    const SeenSlots seen = Seen(query, begin);
    return seen.begin < seen.end;
  }
  // 64 slots from `begin`, and the queries that see some of them: [first, end).
  struct SlotBlock {
    int64_t begin;
    int64_t first;
    int64_t end;
  };
  SlotBlock BlockAt(int64_t begin) const;
  // The first block that one of the queries sees, and the end of the last query's slots.
  int64_t FirstBlock() const {
    if (args.window == 0) return 0;
    const int64_t first = MaxOf(0, row.num_past + Token(0) + 1 - args.window);
    return first / kAttentionKeys * kAttentionKeys;
  }
  int64_t EndSlot() const { return row.num_past + Token(num_queries - 1) + 1; }
  // Scores [query][64] of the block at `begin`.
  float* ScoresOf(int64_t begin) const {
    return task.scores == nullptr ? weights : history + begin * num_queries;
  }
  template <bool kValues>
  int64_t CodeBytes() const {  // of a token's K, or V
    return KvCodeBytes(args.head_dim, kBits<kValues>);
  }
  // The head's K or V in the KV block of `slot`.
  template <bool kValues>
  const std::byte* RunOf(int64_t slot) const {
    const int64_t offset =
        kValues ? args.num_kv_heads * key_run + kv_head * value_run : kv_head * key_run;
    return BlockOf(row, slot, kBlockSlots, task.block_bytes) + offset;
  }
  template <bool kValues>
  const std::byte* Cache(int64_t slot) const {
    return RunOf<kValues>(slot) + slot % kBlockSlots * CodeBytes<kValues>();
  }
  // kLanes tokens from slot `at` of the block at `begin`.
  template <bool kValues>
  TokenRuns<kKv, kBlockSlots, 0> InPlace(int64_t begin, int64_t at) const {
    const int64_t slot = begin + at;
    return {RunOf<kValues>(slot),
            slot,
            {task.block_bytes, row.num_slots, args.head_dim},
            Ahead<kValues>(begin)};
  }
  template <bool kValues>
  auto Coded(int64_t begin, int64_t count) const -> CodedBlock<kBits<kValues>, 0>;
  template <bool kValues>
  WidenedBlock Widen(int64_t begin, int64_t count) const;
  WidenedBlock WidenKeys(int64_t begin, int64_t count) const;
  // True: queries meet the codes of keys as whole numbers.
  bool HasNumbers() const { return kBits<false> < 16 && !args.turns.exist(); }
  CodeQuery NumbersOf(int64_t query) const {
    return {numbers + query * KvQueryFloats(args.head_dim), KvGroups(args.head_dim)};
  }
  // Means of the keys of the KV block of `slot`.
  BlockMeans MeansAt(int64_t slot) const {
    return MeansOf(args, BlockOf(row, slot, kBlockSlots, task.block_bytes),
                   args.num_kv_heads * (key_run + value_run), kv_head, slot, task.has_state);
  }
  template <bool kValues>
  int64_t Ahead(int64_t begin) const;
  void LoadQueries() const;
  void Softmax(const SlotBlock& block) const;
  void Visit(const SlotBlock& block) const;
  void AddPart(int64_t query, int64_t begin, int64_t slot) const;
  void AddWeights(int64_t first, int64_t begin, int64_t slot) const;
  void AddAllWeights() const;
  void Run() const;

  template <int kCodeBits>
  void ScoreSlots(const CodedBlock<kCodeBits, 0>& keys, int64_t slot, const SlotBlock& block) const;
  void ScoreCodes(const SlotBlock& block) const;
  void ScoresInPlace(const SlotBlock& block) const;
  void ValuesInPlace(const SlotBlock& block) const;
  template <typename DotsAt>
  void Scores(int64_t query, int64_t begin, const DotsAt& dots_at) const;
  void Values(const SlotBlock& block, const WidenedBlock& values) const;
};

template <typename Form>
Attend<Form>::Attend(const AttentionTask& attention_task)
    : task(attention_task),
      args(*task.args),
      row(*task.row),
      kv_head(task.kv_head),
      num_queries(task.query_end - task.query_begin),
      first_query(task.query_begin),
      group(task.args->num_heads / task.args->num_kv_heads),
      padded_dim(AttentionPaddedDim(task.args->head_dim)),
      key_run(kBlockSlots * KvTokenBytes(task.args->head_dim, kBits<false>)),
      value_run(kBlockSlots * KvTokenBytes(task.args->head_dim, kBits<true>)),
      q(task.scratch),
      sums(q + kAttentionQueries * padded_dim),
      widened(sums + kAttentionQueries * padded_dim),
      weights(widened + kAttentionKeys * padded_dim),
      ranges(weights + kAttentionQueries * kAttentionKeys),
      maxima(ranges + 2 * kAttentionKeys * KvGroups(args.head_dim)),
      totals(maxima + kAttentionQueries),
      factors(totals + kAttentionQueries),
      numbers(factors + 2 * kAttentionQueries),
      history(task.scratch + AttentionScratchBytes(args.head_dim) / 4) {}

template <typename Form>
void Attend<Form>::LoadQueries() const {
  for (int64_t query = 0; query < num_queries; ++query) {
    const float* from =
        args.q + (row.token_offset + Token(query)) * args.qkv_stride + Head(query) * args.head_dim;
    LoadQuery(from, args.scale, args.head_dim, padded_dim, q + query * padded_dim,
              sums + query * padded_dim);
    if constexpr (kBits<false> < 16) {
      if (HasNumbers())
        RoundQuery<kBits<false>>(q + query * padded_dim, args.head_dim, NumbersOf(query));
    }
    const SoftmaxStart start = StartOf(args, Head(query));
    maxima[query] = start.maximum;
    totals[query] = start.total;
    factors[query] = 0;
  }
}

// Earlier queries may lie before the block, later ones' windows behind it.
template <typename Form>
typename Attend<Form>::SlotBlock Attend<Form>::BlockAt(int64_t begin) const {
  SlotBlock block = {begin, 0, num_queries};
  while (block.first < block.end && !Sees(block.first, begin)) ++block.first;
  while (block.end > block.first && !Sees(block.end - 1, begin)) --block.end;
  return block;
}

// Bytes from the block's keys to its values, or from its values to the keys that come next. Both
// are laid out alike, so each line that is read prefetches the line so far ahead. A burst of
// requests would fill the line buffers, and arithmetic would wait for them.
template <typename Form>
template <bool kValues>
int64_t Attend<Form>::Ahead(int64_t begin) const {
  const int64_t next = begin + kAttentionKeys;
  const bool last = next >= EndSlot();
  if (!kValues) return Cache<true>(begin) - Cache<false>(begin);
  return last ? 0 : BytesBetween(Cache<true>(begin), Cache<false>(next));
}

// Codes in place; their min and scale are converted to floats in `ranges`. What lies
// where Ahead points is prefetched as they are visited.
template <typename Form>
template <bool kValues>
auto Attend<Form>::Coded(int64_t begin, int64_t count) const -> CodedBlock<kBits<kValues>, 0> {
  const int64_t floats = kBlockSlots * 2 * KvGroups(args.head_dim);
  float* to = ranges;
  for (int64_t slot = begin; slot < begin + count; slot += kBlockSlots, to += floats) {
    const auto* from = reinterpret_cast<const uint16_t*>(RunOf<kValues>(slot) +
                                                         kBlockSlots * CodeBytes<kValues>());
    for (int64_t i = 0; i < floats; i += kLanes) Simd::Store(to + i, Simd::LoadHalf(from + i));
  }
  return {Cache<kValues>(begin), ranges,
          args.head_dim,         task.block_bytes,
          Ahead<kValues>(begin), KvTokenBytes(args.head_dim, kBits<!kValues>)};
}

template <typename Form>
template <bool kValues>
WidenedBlock Attend<Form>::Widen(int64_t begin, int64_t count) const {
  const WidenedBlock block = {widened, padded_dim};
  if constexpr (kBits<kValues> < 16) {
    DecodeSlots(Coded<kValues>(begin, count), count, padded_dim, widened);
    return block;
  }
  const int64_t ahead = Ahead<kValues>(begin);
  for (int64_t slot = 0; slot < count; ++slot) {
    const std::byte* from = Cache<kValues>(begin + slot);
    Fetch(from + ahead, args.head_dim * 2);
    WidenToken<kKv>(from, args.head_dim, padded_dim, widened + slot * padded_dim);
  }
  return block;
}

// Keys as queries meet them: turned, where the cache holds them unturned.
template <typename Form>
WidenedBlock Attend<Form>::WidenKeys(int64_t begin, int64_t count) const {
  const WidenedBlock block = Widen<false>(begin, count);
  if (args.turns.exist()) TurnKeys(args.turns, task.turn_rows, begin, count, widened, padded_dim);
  return block;
}

// dots_at(q, slot): q . k of kLanes slots of the block. Lanes that the query does not see hold
// meaningless scores; Softmax replaces them.
template <typename Form>
template <typename DotsAt>
void Attend<Form>::Scores(int64_t query, int64_t begin, const DotsAt& dots_at) const {
  float* scores = ScoresOf(begin) + query * kAttentionKeys;
  const SeenSlots seen = Seen(query, begin);
  for (int64_t slot = seen.begin / kLanes * kLanes; slot < seen.end; slot += kLanes)
    Simd::Store(scores + slot, SoftCapped(dots_at(q + query * padded_dim, slot), args.soft_cap));
}

// Weights of the block's scores; updates maxima, totals and factors. Runs each step for all queries
// before the next step: for a single query the steps are a chain of latencies.
template <typename Form>
void Attend<Form>::Softmax(const SlotBlock& block) const {
  for (int64_t query = block.first; query < block.end; ++query) {
    float* scores = ScoresOf(block.begin) + query * kAttentionKeys;
    const float maximum = HighestScore(scores, Seen(query, block.begin), maxima[query]);
    factors[query] = maxima[query] - maximum;
    maxima[query] = maximum;
  }
  for (int64_t query = 0; query < num_queries; query += kLanes)
    Simd::Store(factors + query, Exp(Simd::Load(factors + query)));
  for (int64_t query = block.first; query < block.end; ++query) {
    const float* scores = ScoresOf(block.begin) + query * kAttentionKeys;
    const float total = WeighScores(scores, Seen(query, block.begin), maxima[query],
                                    weights + query * kAttentionKeys);
    totals[query] = totals[query] * factors[query] + total;
  }
}

template <typename Form>
void Attend<Form>::Values(const SlotBlock& block, const WidenedBlock& values) const {
  auto args_of = [&](int64_t at, SeenSlots slots, const float* factor) {
    return ValueArgs{values,    slots.begin,
                     slots.end, weights + at * kAttentionKeys,
                     factor,    sums + at * padded_dim,
                     padded_dim};
  };
  const NoLinesAhead none;
  int64_t query = block.first;
  while (query < block.end) {
    const SeenSlots common = Seen(query, block.begin);
    const int64_t end = query + kValueQueries;
    if (end > block.end || Seen(end - 1, block.begin).begin > common.begin) {
      MulAllValues<1>(args_of(query, common, factors + query), padded_dim, none);
      ++query;
      continue;
    }
    // Slots that the first query sees are added for all queries at once, the others query by query:
    // a masked slot is not read, so that a NaN there reaches no query that cannot see it.
    MulAllValues<kValueQueries>(args_of(query, common, factors + query), padded_dim, none);
    for (; query < end; ++query) {
      const SeenSlots more = {common.end, Seen(query, block.begin).end};
      if (more.end > more.begin) MulAllValues<1>(args_of(query, more, nullptr), padded_dim, none);
    }
  }
}

// Scores of kLanes keys of codes, for the block's queries.
template <typename Form>
template <int kCodeBits>
void Attend<Form>::ScoreSlots(const CodedBlock<kCodeBits, 0>& keys, int64_t slot,
                              const SlotBlock& block) const {
  float* scores = ScoresOf(block.begin) + block.first * kAttentionKeys + slot;
  const int64_t count = block.end - block.first;
  if (count == 1) {
    Simd::Store(scores, Dots(NumbersOf(block.first), keys, slot));
  } else {
    DotsOf({NumbersOf(block.first), count, KvQueryFloats(args.head_dim), scores, kAttentionKeys},
           keys, slot);
  }
  if (!FinishesScores(args)) return;
  const BlockMeans means = MeansAt(block.begin + slot);
  FinishScores(means, slot % kBlockSlots, EndSlot() - means.first_slot,
               {count, q + block.first * padded_dim, scores});
}

// Scores of a block's keys of codes. Later queries see later slots, and the first ones no longer.
template <typename Form>
void Attend<Form>::ScoreCodes(const SlotBlock& block) const {
  if constexpr (kBits<false> < 16) {
    const int64_t begin = block.begin;
    const int64_t end = Seen(block.end - 1, begin).end;
    const auto keys = Coded<false>(begin, end);
    SlotBlock at = {begin, block.first, block.first};
    int64_t slot = Seen(block.first, begin).begin / kLanes * kLanes;
    for (; slot < end; slot += kLanes) {
      while (Seen(at.first, begin).end <= slot) ++at.first;
      while (at.end < block.end && Seen(at.end, begin).begin < slot + kLanes) ++at.end;
      ScoreSlots(keys, slot, at);
    }
  }
}

// Reads keys of 16 bits in place: with so few queries a widened copy does not pay.
template <typename Form>
void Attend<Form>::ScoresInPlace(const SlotBlock& block) const {
  if constexpr (kBits<false> == 16) {
    const int64_t begin = block.begin;
    const auto dots_at = [&](const float* of_query, int64_t slot) {
      return Dots(of_query, InPlace<false>(begin, slot));
    };
    for (int64_t query = block.first; query < block.end; ++query) Scores(query, begin, dots_at);
  }
}

// Requires: the queries see the block from its first slot on.
template <typename Form>
void Attend<Form>::ValuesInPlace(const SlotBlock& block) const {
  const int64_t begin = block.begin;
  if constexpr (kBits<true> < 16) {
    const auto values = Coded<true>(begin, Seen(block.end - 1, begin).end);
    for (int64_t query = block.first; query < block.end; ++query) {
      MulValues(values, Seen(query, begin).end, weights + query * kAttentionKeys, factors[query],
                sums + query * padded_dim);
    }
  } else {
    for (int64_t query = block.first; query < block.end; ++query) {
      const float* factor = factors + query;
      const int64_t visible = Seen(query, begin).end;
      for (int64_t slot = 0; slot < visible; slot += kLanes, factor = nullptr) {
        AddAllValues({MinOf(kLanes, visible - slot), weights + query * kAttentionKeys + slot,
                      factor, sums + query * padded_dim},
                     InPlace<true>(begin, slot));
      }
    }
  }
}

template <typename Form>
void Attend<Form>::Visit(const SlotBlock& block) const {
  const SeenSlots last = Seen(block.end - 1, block.begin);
  const bool widen =
      args.turns.exist() || last.begin > 0 ||
      block.end - block.first >= (Form::kBoth.coded() ? kWidenCodedQueries : kWidenQueries);
  if (HasNumbers()) {
    ScoreCodes(block);
  } else if (widen) {
    const WidenedBlock keys = WidenKeys(block.begin, last.end);
    const auto dots_at = [&](const float* of_query, int64_t slot) {
      return Dots(of_query, keys, slot, args.head_dim);
    };
    for (int64_t query = block.first; query < block.end; ++query)
      Scores(query, block.begin, dots_at);
  } else {
    ScoresInPlace(block);
  }
  Softmax(block);
  if (widen) return Values(block, Widen<true>(block.begin, last.end));
  ValuesInPlace(block);
}

// A softmax weight is exp(score - maximum) / total, computed again: the exps of the first pass are
// relative to the maximum so far, so that equal scores in two blocks would end up an ulp apart.
inline Simd::F WeightOf(const float* scores, float maximum) {
  return Exp(Simd::Sub(Simd::Load(scores), Simd::Set(maximum)));
}

// Adds a query's weights for those of kAddSlots slots that it sees. Masked slots are not touched.
template <typename Form>
void Attend<Form>::AddPart(int64_t query, int64_t begin, int64_t slot) const {
  const SeenSlots seen = Seen(query, begin);
  const float* scores = ScoresOf(begin) + query * kAttentionKeys + slot;
  float* to = task.scores + Head(query) % group * task.scores_stride + begin + slot;
  const Simd::F inverse = Simd::Set(factors[query]);
  const int64_t end = MinOf(kAddSlots, seen.end - slot);
  for (int64_t at = MaxOf(0, seen.begin - slot) / kLanes * kLanes; at < end; at += kLanes) {
    const int64_t n = MinOf(kLanes, end - at);
    const Simd::F sum = Simd::LoadPart(to + at, n);
    Simd::StorePart(to + at, Simd::Fma(inverse, WeightOf(scores + at, maxima[query]), sum), n);
  }
}

// Adds the weights of one head's queries, `first` and every group-th after it, for kAddSlots slots
// of the block at `begin`: first come those that see part of these slots, then those that see all,
// then those whose window has left some behind.
template <typename Form>
void Attend<Form>::AddWeights(int64_t first, int64_t begin, int64_t slot) const {
  auto sees_all = [&](int64_t at) {
    const SeenSlots seen = Seen(at, begin);
    return seen.begin <= slot && slot + kAddSlots <= seen.end;
  };
  int64_t query = first;
  for (; query < num_queries && !sees_all(query); query += group) AddPart(query, begin, slot);
  if (query >= num_queries) return;
  float* to = task.scores + Head(first) % group * task.scores_stride + begin + slot;
  Simd::F sums_of[kAddVectors];
  for (int v = 0; v < kAddVectors; ++v) sums_of[v] = Simd::Load(to + v * kLanes);
  for (; query < num_queries && sees_all(query); query += group) {
    const float* scores = ScoresOf(begin) + query * kAttentionKeys + slot;
    const Simd::F inverse = Simd::Set(factors[query]);
    for (int v = 0; v < kAddVectors; ++v)
      sums_of[v] = Simd::Fma(inverse, WeightOf(scores + v * kLanes, maxima[query]), sums_of[v]);
  }
  for (int v = 0; v < kAddVectors; ++v) Simd::Store(to + v * kLanes, sums_of[v]);
  for (; query < num_queries; query += group) AddPart(query, begin, slot);
}

// The queries of each head in ascending order, whichever blocks of queries they came in.
template <typename Form>
void Attend<Form>::AddAllWeights() const {
  for (int64_t query = 0; query < num_queries; ++query) factors[query] = 1.0F / totals[query];
  for (int64_t first = 0; first < MinOf(group, num_queries); ++first) {
    for (int64_t begin = FirstBlock(); begin < EndSlot(); begin += kAttentionKeys) {
      for (int64_t slot = 0; slot < kAttentionKeys; slot += kAddSlots)
        AddWeights(first, begin, slot);
    }
  }
}

template <typename Form>
void Attend<Form>::Run() const {
  LoadQueries();
  for (int64_t begin = FirstBlock(); begin < EndSlot(); begin += kAttentionKeys)
    Visit(BlockAt(begin));
  if (task.scores != nullptr) AddAllWeights();
  for (int64_t query = 0; query < num_queries; ++query) {
    float* to = args.out + (row.token_offset + Token(query)) * args.out_stride +
                Head(query) * args.head_dim;
    StoreOutput(sums + query * padded_dim, totals[query], args.head_dim, to);
  }
}

inline void AttendSimd(const AttentionTask& task) {
  WithForm(*task.args, [&](auto form) { Attend<decltype(form)>(task).Run(); });
}

}  // namespace
}  // namespace spillway::kernels
