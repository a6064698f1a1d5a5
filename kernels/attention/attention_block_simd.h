// The steps of attention on one block of slots: scores of a query, its softmax, weighted values.
// Private to attention_simd.h: compiled once per instruction set.
#pragma once

#include <cstdint>

#include "kernels/attention/attention_isa.h"
#include "kernels/attention/lines_ahead_simd.h"
#include "kernels/attention/token_runs_simd.h"
#include "kernels/rows/rotate_simd.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int kValueQueries =
    kLanes == 16 ? 6 : 3;  // times 4 registers of head_dim: 24 of 32, or 12 of 16
constexpr int kValueVectors = 4;
constexpr int kAddVectors = 4;  // registers of scores that weights are added to at a time

constexpr float kMinusInfinity = -__builtin_inff();

// The KV block of a slot of the row, of which the first may lie elsewhere.
inline const std::byte* BlockOf(const AttentionRow& row, int64_t slot, int64_t block_slots,
                                int64_t block_bytes) {
  const bool in_prefix = slot < row.prefix_slots;
  const int64_t own_slot = in_prefix ? slot : slot - row.prefix_slots;
  return (in_prefix ? row.prefix : row.kv) + own_slot / block_slots * block_bytes;
}

// 64 slots of K or V, widened to fp32.
struct WidenedBlock {
  const float* data;
  int64_t stride;  // elements from slot to slot
};

// A query's softmax before any key: of nothing, or of its head's sink.
struct SoftmaxStart {
  float maximum = kMinusInfinity;
  float total = 0.0F;
};
inline SoftmaxStart StartOf(const AttentionTensors& args, int64_t head) {
  if (args.sinks == nullptr) return {};
  return {args.sinks[head], 1.0F};
}

// A query, scaled, to `q`, [padded_dim]; zeros to its sums.
inline void LoadQuery(const float* from, float scale, int64_t dim, int64_t padded_dim, float* q,
                      float* sums) {
  for (int64_t d = 0; d < padded_dim; d += kLanes) {
    const int64_t n = d < dim ? MinOf(kLanes, dim - d) : 0;
    Simd::Store(q + d, Simd::Mul(Simd::Set(scale), Simd::LoadPart(from + d, n)));
    Simd::Store(sums + d, Simd::Zero());
  }
}

// A query's sums over its total, to [dim].
inline void StoreOutput(const float* sums, float total, int64_t dim, float* to) {
  const Simd::F scale = Simd::Set(1.0F / total);
  for (int64_t d = 0; d < dim; d += kLanes)
    Simd::StorePart(to + d, Simd::Mul(scale, Simd::Load(sums + d)), MinOf(kLanes, dim - d));
}

// One token's K, or V, of 16 bits to `to`, [padded_dim]. Whole registers first, for they are all
// there is in most heads: a choice in each round costs more than the widening.
template <DType kKv>
inline __attribute__((always_inline)) void WidenToken(const std::byte* from, int64_t dim,
                                                      int64_t padded_dim, float* to) {
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) Simd::Store(to + d, LoadAs<kKv>(from, d));
  for (; d < padded_dim; d += kLanes)
    Simd::Store(to + d, d < dim ? LoadPartAs<kKv>(from, d, dim - d) : Simd::Zero());
}

// Turns a widened key to its place.
inline void TurnKey(const KeyTurns& turns, int64_t row, float* key) {
  const float* cosines = turns.Cosines(row);
  const float* sines = turns.Sines(row);
  if (turns.pairs == RopePairs::kHalves) return RotateHalves(cosines, sines, turns.dims / 2, key);
  for (int64_t pair = 0; pair < turns.dims / 2; ++pair) {
    const float a = key[2 * pair];
    const float b = key[2 * pair + 1];
    key[2 * pair] = a * cosines[pair] - b * sines[pair];
    key[2 * pair + 1] = b * cosines[pair] + a * sines[pair];
  }
}

// Turns the widened keys, `stride` apart, of `count` slots from `slot` on. `turn_rows`: as in
// AttentionTask.
inline void TurnKeys(const KeyTurns& turns, const int32_t* turn_rows, int64_t slot, int64_t count,
                     float* keys, int64_t stride) {
  for (int64_t end = slot + count; slot < end; ++slot, keys += stride)
    TurnKey(turns, turn_rows == nullptr ? slot : turn_rows[slot], keys);
}

// Means of the keys of a KV block of codes, of one KV head: at the positions of its slots, or at
// those that its state says. Requires: keys are centred.
struct BlockMeans {
  const AttentionTensors& args;
  int64_t kv_head;
  int64_t first_slot;    // of the row
  const int32_t* state;  // null: slots are positions

  const float* Of(int64_t in_block) const {
    const int64_t position = state == nullptr ? first_slot + in_block : state[in_block];
    return args.means.At(kv_head, position, args.head_dim);
  }
};

// Those of the block of codes of `slot`, in a cache whose positions, where it `has_state`, lie
// behind the values, of `token_bytes` in all, and the scores.
inline BlockMeans MeansOf(const AttentionTensors& args, const std::byte* block, int64_t token_bytes,
                          int64_t kv_head, int64_t slot, bool has_state) {
  const int64_t run = (args.num_kv_heads + kv_head) * kKvCodedBlockSlots * 4;
  const auto* state = reinterpret_cast<const int32_t*>(block + token_bytes + run);
  return {args, kv_head, slot / kKvCodedBlockSlots * kKvCodedBlockSlots,
          has_state ? state : nullptr};
}

constexpr int64_t RoundUpToLanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// acc[i] += query . (slot i's register at element d, of kLanes slots from `keys`). Unrolled by
// force: an index that is not a constant would put the accumulators in memory. Four slots to an
// address, so that the addresses stay in registers.
template <bool kPart>
inline __attribute__((always_inline)) void AddDots(Simd::F (&acc)[kLanes], Simd::F query,
                                                   const float* keys, int64_t d, int64_t stride,
                                                   int64_t part) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    const float* at = keys + d + i / 4 * (4 * stride) + i % 4 * stride;
    const Simd::F key = kPart ? Simd::LoadPart(at, part) : Simd::Load(at);
    acc[i] = Simd::Fma(query, key, acc[i]);
  }
}

// q . k for kLanes slots from `slot`.
inline Simd::F Dots(const float* q, const WidenedBlock& block, int64_t slot, int64_t head_dim) {
  const float* keys = block.data + slot * block.stride;
  Simd::F acc[kLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) acc[i] = Simd::Zero();
  int64_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes)
    AddDots<false>(acc, Simd::Load(q + d), keys, d, block.stride, 0);
  if (d < head_dim) AddDots<true>(acc, Simd::Load(q + d), keys, d, block.stride, head_dim - d);
  return Simd::SumEach(acc);
}

// Slots [begin, end) of a block that a query sees. Requires: there is one.
struct SeenSlots {
  int64_t begin;
  int64_t end;
};

// The highest of `maximum` and a block's scores of one query. Lanes of the same registers that it
// does not see become minus infinity.
inline float HighestScore(float* scores, SeenSlots seen, float maximum) {
  const int64_t first = seen.begin / kLanes * kLanes;
  const int64_t end = RoundUpToLanes(seen.end);
  for (int64_t slot = first; slot < seen.begin; ++slot) scores[slot] = kMinusInfinity;
  for (int64_t slot = seen.end; slot < end; ++slot) scores[slot] = kMinusInfinity;
  Simd::F highest = Simd::Set(maximum);
  for (int64_t slot = first; slot < end; slot += kLanes)
    highest = Simd::Max(highest, Simd::Load(scores + slot));
  return Simd::MaxOf(highest);
}

// weights = exp(score - maximum), zero for lanes that the query does not see. Returns their sum.
inline float WeighScores(const float* scores, SeenSlots seen, float maximum, float* weights) {
  const Simd::F offset = Simd::Set(maximum);
  Simd::F total = Simd::Zero();
  for (int64_t slot = seen.begin / kLanes * kLanes; slot < seen.end; slot += kLanes) {
    const Simd::F weight = Exp(Simd::Sub(Simd::Load(scores + slot), offset));
    total = Simd::Add(total, weight);
    Simd::Store(weights + slot, weight);
  }
  return Simd::Sum(total);
}

// Some queries and slots [begin, end): sums = sums * factor + weights . values.
struct ValueArgs {
  WidenedBlock values;
  int64_t begin;
  int64_t end;
  const float* weights;  // of the first query
  const float* factors;  // null: keep the sums as they are
  float* sums;
  int64_t sums_stride;
};

// Sums of kQ queries in kV registers of head_dim, from element d.
template <int kQ, int kV>
struct ValueSums {
  Simd::F acc[kQ][kV];

  // Loads them, times the factors.
  inline __attribute__((always_inline)) ValueSums(const ValueArgs& args, int64_t d) {
    for (int query = 0; query < kQ; ++query) {
      for (int v = 0; v < kV; ++v)
        acc[query][v] = Simd::Load(args.sums + query * args.sums_stride + d + v * kLanes);
      if (args.factors == nullptr) continue;
      for (int v = 0; v < kV; ++v)
        acc[query][v] = Simd::Mul(acc[query][v], Simd::Set(args.factors[query]));
    }
  }
  // Adds a slot's values times its weights.
  inline __attribute__((always_inline)) void Add(const ValueArgs& args, int64_t slot,
                                                 const Simd::F (&value)[kV]) {
    for (int query = 0; query < kQ; ++query) {
      const Simd::F weight = Simd::Set(args.weights[query * kAttentionKeys + slot]);
      for (int v = 0; v < kV; ++v) acc[query][v] = Simd::Fma(weight, value[v], acc[query][v]);
    }
  }
  inline __attribute__((always_inline)) void Store(const ValueArgs& args, int64_t d) const {
    for (int query = 0; query < kQ; ++query) {
      for (int v = 0; v < kV; ++v)
        Simd::Store(args.sums + query * args.sums_stride + d + v * kLanes, acc[query][v]);
    }
  }
};

template <int kQ, int kV, typename Ahead>
void MulValues(const ValueArgs& args, int64_t d, Ahead& ahead) {
  ValueSums<kQ, kV> sums(args, d);
  const float* at = args.values.data + args.begin * args.values.stride + d;
  for (int64_t slot = args.begin; slot < args.end; ++slot, at += args.values.stride) {
    ahead.FetchSome();
    Simd::F value[kV];
    for (int v = 0; v < kV; ++v) value[v] = Simd::Load(at + v * kLanes);
    sums.Add(args, slot, value);
  }
  sums.Store(args, d);
}

// All of padded_dim, whole registers, for kQ queries.
template <int kQ, typename Ahead>
void MulAllValues(const ValueArgs& args, int64_t padded_dim, Ahead& ahead) {
  int64_t d = 0;
  for (; d + kValueVectors * kLanes <= padded_dim; d += kValueVectors * kLanes)
    MulValues<kQ, kValueVectors>(args, d, ahead);
  for (; d < padded_dim; d += kLanes) MulValues<kQ, 1>(args, d, ahead);
}

}  // namespace
}  // namespace spillway::kernels
