// Body of AttentionTask, compiled once per instruction set. Order of operations of one query: slots
// are visited in blocks of 64 from slot 0; a score is one register of lanes along head_dim, added
// by the fixed tree; the block's maximum, then exp, then its sum (lanes, then the tree) update the
// running softmax; values are added slot by slot. How many queries share a pass, and whether K and
// V were widened first, changes no bit. K and V of 8 and 4 bits are read as min + scale * code
// wherever an element is loaded; after that the order is the same.
#pragma once

#include "kernels/attention/attention_block_simd.h"
#include "kernels/attention/attention_isa.h"
#include "kernels/attention/token_runs_simd.h"
#include "kernels/kv/kv_code_simd.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kAddSlots = kAddVectors * kLanes;
// Numbers of queries from which a block of K or V is widened to fp32 once for all of them.
constexpr int64_t kWidenQueries = 3;
constexpr int64_t kWidenCodedQueries = 2;

static_assert(kKvCodedBlockSlots % kLanes == 0 && kAttentionKeys % kKvCodedBlockSlots == 0);

// One AttentionTask. kBits below 16: the cache holds codes, and kKv is not used.
template <DType kKv, int kBits>
struct Attend {
  static constexpr int64_t kBlockSlots = KvBlockSlots(kBits);

  const AttentionTask& task;
  const AttentionArgs& args;
  const AttentionRow& row;
  int64_t kv_head;
  int64_t num_queries;
  int64_t first_query;
  int64_t group;
  int64_t padded_dim;
  int64_t code_bytes;   // of a token's K or V
  int64_t token_bytes;  // of the same, min and scale included
  float* q;             // [query][padded_dim], scaled
  float* sums;          // [query][padded_dim]
  float* widened;       // [slot][padded_dim]
  float* weights;       // [query][64]: scores, then exp
  float* ranges;        // [KV block][group][16][min, scale] of a block of codes
  float* maxima;        // [query]
  float* totals;        // [query]
  float* factors;       // [query]: what the sums so far are multiplied by in this block
  float* history;       // [block][query][64]: the scores, where the task adds weights up

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
  // The head's K or V in the KV block of `slot`.
  const std::byte* RunOf(bool values, int64_t slot) const {
    const int64_t head = (values ? args.num_kv_heads : 0) + kv_head;
    return row.kv + slot / kBlockSlots * task.block_bytes + head * kBlockSlots * token_bytes;
  }
  const std::byte* Cache(bool values, int64_t slot) const {
    return RunOf(values, slot) + slot % kBlockSlots * code_bytes;
  }
  // kLanes tokens from slot `at` of the block at `begin`.
  TokenRuns<kKv, 0> InPlace(bool values, int64_t begin, int64_t at) const {
    const int64_t slot = begin + at;
    return {RunOf(values, slot),
            slot,
            {task.block_bytes, row.num_slots, args.head_dim},
            Ahead(values, begin)};
  }
  CodedBlock<kBits> Coded(bool values, int64_t begin, int64_t count) const;
  WidenedBlock Widen(bool values, int64_t begin, int64_t count) const;
  int64_t Ahead(bool values, int64_t begin) const;
  void LoadQueries() const;
  void Softmax(const SlotBlock& block) const;
  void Visit(const SlotBlock& block) const;
  void AddPart(int64_t query, int64_t begin, int64_t slot) const;
  void AddWeights(int64_t first, int64_t begin, int64_t slot) const;
  void AddAllWeights() const;
  void Run() const;

  void ScoresInPlace(const SlotBlock& block) const;
  void ValuesInPlace(const SlotBlock& block) const;
  template <typename DotsAt>
  void Scores(int64_t query, int64_t begin, const DotsAt& dots_at) const;
  void Values(const SlotBlock& block, const WidenedBlock& values) const;
};

template <DType kKv, int kBits>
Attend<kKv, kBits>::Attend(const AttentionTask& attention_task)
    : task(attention_task),
      args(*task.args),
      row(*task.row),
      kv_head(task.kv_head),
      num_queries(task.query_end - task.query_begin),
      first_query(task.query_begin),
      group(task.args->num_heads / task.args->num_kv_heads),
      padded_dim(AttentionPaddedDim(task.args->head_dim)),
      code_bytes(KvCodeBytes(task.args->head_dim, kBits)),
      token_bytes(KvTokenBytes(task.args->head_dim, kBits)),
      q(task.scratch),
      sums(q + kAttentionQueries * padded_dim),
      widened(sums + kAttentionQueries * padded_dim),
      weights(widened + kAttentionKeys * padded_dim),
      ranges(weights + kAttentionQueries * kAttentionKeys),
      maxima(ranges + 2 * kAttentionKeys * KvGroups(args.head_dim)),
      totals(maxima + kAttentionQueries),
      factors(totals + kAttentionQueries),
      history(task.scratch + AttentionScratchBytes(args.head_dim) / 4) {}

template <DType kKv, int kBits>
void Attend<kKv, kBits>::LoadQueries() const {
  for (int64_t query = 0; query < num_queries; ++query) {
    const float* from =
        args.q + (row.token_offset + Token(query)) * args.qkv_stride + Head(query) * args.head_dim;
    LoadQuery(from, args.scale, args.head_dim, padded_dim, q + query * padded_dim,
              sums + query * padded_dim);
    maxima[query] = kMinusInfinity;
    totals[query] = 0;
    factors[query] = 0;
  }
}

// Earlier queries may lie before the block, later ones' windows behind it.
template <DType kKv, int kBits>
typename Attend<kKv, kBits>::SlotBlock Attend<kKv, kBits>::BlockAt(int64_t begin) const {
  SlotBlock block = {begin, 0, num_queries};
  while (block.first < block.end && !Sees(block.first, begin)) ++block.first;
  while (block.end > block.first && !Sees(block.end - 1, begin)) --block.end;
  return block;
}

// Bytes from the block's keys to its values, or from its values to the keys that come next. Both
// are laid out alike, so each line that is read prefetches the line so far ahead. A burst of
// requests would fill the line buffers, and arithmetic would wait for them.
template <DType kKv, int kBits>
int64_t Attend<kKv, kBits>::Ahead(bool values, int64_t begin) const {
  const int64_t next = begin + kAttentionKeys;
  const bool last = next >= EndSlot();
  if (!values) return Cache(true, begin) - Cache(false, begin);
  return last ? 0 : Cache(false, next) - Cache(true, begin);
}

// Codes in place; their min and scale are converted to floats in `ranges`.
template <DType kKv, int kBits>
CodedBlock<kBits> Attend<kKv, kBits>::Coded(bool values, int64_t begin, int64_t count) const {
  const int64_t floats = kBlockSlots * 2 * KvGroups(args.head_dim);
  float* to = ranges;
  for (int64_t slot = begin; slot < begin + count; slot += kBlockSlots, to += floats) {
    const auto* from =
        reinterpret_cast<const uint16_t*>(RunOf(values, slot) + kBlockSlots * code_bytes);
    for (int64_t i = 0; i < floats; i += kLanes) Simd::Store(to + i, Simd::LoadHalf(from + i));
  }
  return {Cache(values, begin), ranges, args.head_dim, task.block_bytes, Ahead(values, begin)};
}

template <DType kKv, int kBits>
WidenedBlock Attend<kKv, kBits>::Widen(bool values, int64_t begin, int64_t count) const {
  const WidenedBlock block = {widened, padded_dim};
  if constexpr (kBits < 16) {
    const CodedBlock<kBits> coded = Coded(values, begin, count);
    for (int64_t slot = 0; slot < count; ++slot) {
      coded.FetchAhead(slot);
      DecodeSlot(coded, slot, padded_dim, widened + slot * padded_dim);
    }
    return block;
  }
  const int64_t ahead = Ahead(values, begin);
  for (int64_t slot = 0; slot < count; ++slot) {
    const std::byte* from = Cache(values, begin + slot);
    Fetch(from + ahead, args.head_dim * 2);
    WidenToken<kKv>(from, args.head_dim, padded_dim, widened + slot * padded_dim);
  }
  return block;
}

// dots_at(q, slot): q . k of kLanes slots of the block. Lanes that the query does not see hold
// meaningless scores; Softmax replaces them.
template <DType kKv, int kBits>
template <typename DotsAt>
void Attend<kKv, kBits>::Scores(int64_t query, int64_t begin, const DotsAt& dots_at) const {
  float* scores = ScoresOf(begin) + query * kAttentionKeys;
  const SeenSlots seen = Seen(query, begin);
  for (int64_t slot = seen.begin / kLanes * kLanes; slot < seen.end; slot += kLanes)
    Simd::Store(scores + slot, SoftCapped(dots_at(q + query * padded_dim, slot), args.soft_cap));
}

// Weights of the block's scores; updates maxima, totals and factors. Runs each step for all queries
// before the next step: for a single query the steps are a chain of latencies.
template <DType kKv, int kBits>
void Attend<kKv, kBits>::Softmax(const SlotBlock& block) const {
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

template <DType kKv, int kBits>
void Attend<kKv, kBits>::Values(const SlotBlock& block, const WidenedBlock& values) const {
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

// Reads keys in place: with so few queries a widened copy does not pay.
template <DType kKv, int kBits>
void Attend<kKv, kBits>::ScoresInPlace(const SlotBlock& block) const {
  const int64_t begin = block.begin;
  if constexpr (kBits < 16) {
    const CodedBlock<kBits> keys = Coded(false, begin, Seen(block.end - 1, begin).end);
    const auto dots_at = [&](const float* of_query, int64_t slot) {
      return Dots(of_query, keys, slot, args.head_dim);
    };
    for (int64_t query = block.first; query < block.end; ++query) Scores(query, begin, dots_at);
  } else {
    const auto dots_at = [&](const float* of_query, int64_t slot) {
      return Dots(of_query, InPlace(false, begin, slot));
    };
    for (int64_t query = block.first; query < block.end; ++query) Scores(query, begin, dots_at);
  }
}

// Requires: the queries see the block from its first slot on.
template <DType kKv, int kBits>
void Attend<kKv, kBits>::ValuesInPlace(const SlotBlock& block) const {
  const int64_t begin = block.begin;
  if constexpr (kBits < 16) {
    const CodedBlock<kBits> values = Coded(true, begin, Seen(block.end - 1, begin).end);
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
                     InPlace(true, begin, slot));
      }
    }
  }
}

template <DType kKv, int kBits>
void Attend<kKv, kBits>::Visit(const SlotBlock& block) const {
  const SeenSlots last = Seen(block.end - 1, block.begin);
  const bool widen = last.begin > 0 ||
                     block.end - block.first >= (kBits < 16 ? kWidenCodedQueries : kWidenQueries);
  if (widen) {
    const WidenedBlock keys = Widen(false, block.begin, last.end);
    const auto dots_at = [&](const float* of_query, int64_t slot) {
      return Dots(of_query, keys, slot, args.head_dim);
    };
    for (int64_t query = block.first; query < block.end; ++query)
      Scores(query, block.begin, dots_at);
  } else {
    ScoresInPlace(block);
  }
  Softmax(block);
  if (widen) return Values(block, Widen(true, block.begin, last.end));
  ValuesInPlace(block);
}

// A softmax weight is exp(score - maximum) / total, computed again: the exps of the first pass are
// relative to the maximum so far, so that equal scores in two blocks would end up an ulp apart.
inline Simd::F WeightOf(const float* scores, float maximum) {
  return Exp(Simd::Sub(Simd::Load(scores), Simd::Set(maximum)));
}

// Adds a query's weights for those of kAddSlots slots that it sees. Masked slots are not touched.
template <DType kKv, int kBits>
void Attend<kKv, kBits>::AddPart(int64_t query, int64_t begin, int64_t slot) const {
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
template <DType kKv, int kBits>
void Attend<kKv, kBits>::AddWeights(int64_t first, int64_t begin, int64_t slot) const {
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
template <DType kKv, int kBits>
void Attend<kKv, kBits>::AddAllWeights() const {
  for (int64_t query = 0; query < num_queries; ++query) factors[query] = 1.0F / totals[query];
  for (int64_t first = 0; first < MinOf(group, num_queries); ++first) {
    for (int64_t begin = FirstBlock(); begin < EndSlot(); begin += kAttentionKeys) {
      for (int64_t slot = 0; slot < kAttentionKeys; slot += kAddSlots)
        AddWeights(first, begin, slot);
    }
  }
}

template <DType kKv, int kBits>
void Attend<kKv, kBits>::Run() const {
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

// One token's K, or V.
template <DType kKv>
void StoreToken(const float* x, int64_t head_dim, std::byte* to) {
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const int64_t n = MinOf(kLanes, head_dim - d);
    // Whole registers where possible: the token is read again at once, and a load waits for a
    // masked store, not for a whole one.
    n == kLanes ? StoreAs<kKv>(to, d, Simd::Load(x + d))
                : StorePartAs<kKv>(to, d, Simd::LoadPart(x + d, n), n);
  }
}

template <DType kKv, int kBits>
void StoreKv(const AttentionTask& task) {
  const AttentionArgs& args = *task.args;
  const AttentionRow& row = *task.row;
  constexpr int64_t kBlockSlots = KvBlockSlots(kBits);
  const int64_t code_bytes = KvCodeBytes(args.head_dim, kBits);
  for (int64_t half = 0; half < 2; ++half) {
    const float* from = (half == 0 ? args.k : args.v) + task.kv_head * args.head_dim;
    const int64_t head = half * args.num_kv_heads + task.kv_head;
    for (int64_t token = 0; token < row.num_new; ++token) {
      const int64_t slot = row.num_past + token;
      std::byte* run = row.kv + slot / kBlockSlots * task.block_bytes +
                       head * kBlockSlots * KvTokenBytes(args.head_dim, kBits);
      std::byte* to = run + slot % kBlockSlots * code_bytes;
      const float* x = from + (row.token_offset + token) * args.qkv_stride;
      if constexpr (kBits < 16) {
        std::byte* ranges = run + kBlockSlots * code_bytes + slot % kBlockSlots * 4;
        EncodeToken<kBits>(x, args.head_dim, to, ranges);
      } else {
        StoreToken<kKv>(x, args.head_dim, to);
      }
    }
  }
}

inline void StoreKvSimd(const AttentionTask& task) {
  if (task.args->kv_bits == 8) return StoreKv<DType::kF16, 8>(task);
  if (task.args->kv_bits == 4) return StoreKv<DType::kF16, 4>(task);
  task.args->kv_dtype == DType::kF16 ? StoreKv<DType::kF16, 16>(task)
                                     : StoreKv<DType::kBF16, 16>(task);
}

inline void AttendSimd(const AttentionTask& task) {
  if (task.args->kv_bits == 8) return Attend<DType::kF16, 8>(task).Run();
  if (task.args->kv_bits == 4) return Attend<DType::kF16, 4>(task).Run();
  task.args->kv_dtype == DType::kF16 ? Attend<DType::kF16, 16>(task).Run()
                                     : Attend<DType::kBF16, 16>(task).Run();
}

}  // namespace
}  // namespace spillway::kernels
