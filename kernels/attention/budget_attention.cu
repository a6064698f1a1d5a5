#include <cmath>

#include "kernels/attention/budget_attention.h"
#include "kernels/attention/decode_attention.h"  // kMaxGpuHeadDim
#include "kernels/kv/kv_eviction.h"
#include "kernels/kv/kv_layout.h"
#include "kernels/kv/kv_vectors.cuh"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// A held token that may be evicted.
struct Candidate {
  float score;
  int32_t position;
  int32_t slot;  // -1: none
};

// The lowest score is evicted, among equals the higher position. Positions differ, so that the
// order in which candidates are compared does not matter.
__device__ bool GoesBefore(const Candidate& a, const Candidate& b) {
  if (a.slot < 0 || b.slot < 0) return a.slot >= 0;
  return a.score < b.score || (a.score == b.score && a.position > b.position);
}

// One KV head of one row: a block computes it alone, since a cache of fixed size is short.
template <typename Format, int kLanes>
struct BudgetStep {
  static constexpr int kGroups = kWarp / kLanes;
  static constexpr int kParts = kWarps * kGroups;

  const GpuBudgetAttentionArgs& args;
  const BudgetAttentionRow& row;
  KvLayout layout;
  int64_t kv_head;  // of those in the row's cache
  float* shared;    // kParts * kLanes * kVectorElements

  using Keys = typename Format::Keys;
  using Values = typename Format::Values;
  using Form = typename Format::Form;
  static constexpr int kLoads = Values::kLoads;

  __device__ int64_t NumKeys() const { return row.num_held + 1; }
  template <typename Part>
  __device__ int64_t Element(int vector, int i) const {
    return VectorElement<Part::kBits>(vector, i, layout.head_dim);
  }
  __device__ float* Score(int64_t slot) const {
    return reinterpret_cast<float*>(row.kv + ScoreOffset<Form>(layout, kv_head, slot));
  }
  __device__ int32_t* Position(int64_t slot) const {
    return reinterpret_cast<int32_t*>(row.kv + PositionOffset<Form>(layout, kv_head, slot));
  }
  __device__ float* Weights(int64_t head) const {
    const BudgetAttentionArgs& step = args.step;
    const int64_t group = step.num_heads / step.num_kv_heads;
    const int64_t of_run = head - row.kv_head * group;
    return args.weights + (blockIdx.x * step.RunHeads() * group + of_run) * args.weights_stride;
  }

  __device__ void Append() const {
    const int64_t from =
        row.token_offset * args.step.qkv_stride + (row.kv_head + kv_head) * layout.head_dim;
    TokenStore<Format, kThreads>{
        row.kv, layout, row.num_held, kv_head, 1, args.step.k + from, args.step.v + from}
        .Run();
    if (threadIdx.x == 0) {
      *Score(row.num_held) = 0.0F;
      *Position(row.num_held) = static_cast<int32_t>(row.position);
    }
    __syncthreads();
  }

  __device__ int32_t* TurnRows() const {
    return args.turn_rows + (blockIdx.x * args.step.RunHeads() + kv_head) * args.weights_stride;
  }

  // Counts back from the new token's place by the tokens behind each. Recent tokens are all held,
  // so that for them it is the distance.
  __device__ void FindTurns() const {
    constexpr int kTile = kThreads * kVectorElements;
    auto* positions = reinterpret_cast<int32_t*>(shared);
    const int64_t first_recent = row.position + 1 - row.keep.recent;
    int32_t* rows = TurnRows();
    for (int64_t slot = threadIdx.x; slot < NumKeys(); slot += kThreads)
      rows[slot] = static_cast<int32_t>(row.newest_place);
    for (int64_t first = 0; first < NumKeys(); first += kTile) {
      const int count = static_cast<int>(NumKeys() - first < kTile ? NumKeys() - first : kTile);
      for (int at = threadIdx.x; at < count; at += kThreads) positions[at] = *Position(first + at);
      __syncthreads();
      for (int64_t slot = threadIdx.x; slot < NumKeys(); slot += kThreads) {
        const int32_t position = *Position(slot);
        int32_t later = 0;
        if (position >= first_recent) {
          later = first == 0 ? static_cast<int32_t>(row.position) - position : 0;
        } else {
          for (int at = 0; at < count; ++at) later += positions[at] > position ? 1 : 0;
        }
        rows[slot] -= later;
      }
      __syncthreads();
    }
  }

  // Factors of a lane's key elements where keys are turned. Each element k of the unturned key adds
  // k * (own * cosine + other * sine) to the product of query and turned key: `own` is the query's
  // element there, `other` that of the pair's other element, negative for a pair's second.
  struct TurnedQuery {
    float own[kVectorElements];
    float other[kVectorElements];
    int pair[kVectorElements];  // -1: the element is not turned
  };

  __device__ TurnedQuery LoadTurned(const float* from, int vector, bool has_dims) const {
    const KeyTurns& turns = args.step.turns;
    const bool halves = turns.pairs == RopePairs::kHalves;
    const int half = static_cast<int>(turns.dims / 2);
    TurnedQuery q;
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      const int d = has_dims ? static_cast<int>(Element<Keys>(vector, i)) : 0;
      const bool turned = has_dims && d < turns.dims;
      const bool is_first = halves ? d < half : d % 2 == 0;
      q.pair[i] = !turned ? -1 : halves ? d % half : d / 2;
      q.own[i] = has_dims ? from[d] * args.step.scale : 0.0F;
      const int64_t partner = is_first ? turns.Second(q.pair[i]) : turns.First(q.pair[i]);
      const float other = turned ? from[partner] * args.step.scale : 0.0F;
      q.other[i] = is_first ? other : -other;
    }
    return q;
  }

  __device__ float TurnedDot(const TurnedQuery& q, const float (&key)[kVectorElements],
                             int64_t turn_row) const {
    const float* cosines = args.step.turns.Cosines(turn_row);
    const float* sines = args.step.turns.Sines(turn_row);
    float dot = 0.0F;
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      const float cosine = q.pair[i] < 0 ? 1.0F : cosines[q.pair[i]];
      const float sine = q.pair[i] < 0 ? 0.0F : sines[q.pair[i]];
      dot = fmaf(key[i], fmaf(q.own[i], cosine, q.other[i] * sine), dot);
    }
    return dot;
  }

  // Scores, not yet weights, of one query head: dot_of(key, slot) is a lane's part of a product.
  template <typename Dot>
  __device__ void ScoreWith(int64_t head, const Dot& dot_of) const {
    const int vector = threadIdx.x % kLanes;
    const bool has_dims = vector * kVectorElements < layout.head_dim;
    float* scores = Weights(head);
    // All lanes of a warp run the same number of rounds: the sum over lanes needs them all.
    for (int64_t first = 0; first < NumKeys(); first += kParts) {
      const int64_t slot = first + threadIdx.x / kLanes;
      float dot = 0.0F;
      if (slot < NumKeys() && has_dims) {
        float key[kVectorElements];
        Keys::Widen(Keys::template Load<ReadWritten>(row.kv, layout, {kv_head, slot, vector}), key);
        if (args.step.means.exist()) {
          AddMean<Keys>(args.step.means, {row.kv_head + kv_head, slot, vector}, *Position(slot),
                        layout.head_dim, key);
        }
        dot = dot_of(key, slot);
      }
      dot = SumOverLanes<kLanes>(dot);
      if (vector == 0 && slot < NumKeys()) scores[slot] = SoftCapped(dot, args.step.soft_cap);
    }
    __syncthreads();
  }

  __device__ void ScoreKeys(int64_t head) const {
    const BudgetAttentionArgs& step = args.step;
    const int vector = threadIdx.x % kLanes;
    const bool has_dims = vector * kVectorElements < layout.head_dim;
    const float* from = step.q + row.token_offset * step.qkv_stride + head * layout.head_dim;
    if (step.turns.exist()) {
      const TurnedQuery q = LoadTurned(from, vector, has_dims);
      const int32_t* turn_rows = TurnRows();
      return ScoreWith(head, [&](const float(&key)[kVectorElements], int64_t slot) {
        return TurnedDot(q, key, turn_rows[slot]);
      });
    }
    float q[kVectorElements];
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      q[i] = has_dims ? from[Element<Keys>(vector, i)] * step.scale : 0.0F;
    }
    ScoreWith(head, [&](const float(&key)[kVectorElements], int64_t) {
      float dot = 0.0F;
#pragma unroll
      for (int i = 0; i < kVectorElements; ++i) dot = fmaf(q[i], key[i], dot);
      return dot;
    });
  }

  __device__ void Softmax(int64_t head) const {
    float* weights = Weights(head);
    float maximum = -INFINITY;
    for (int64_t slot = threadIdx.x; slot < NumKeys(); slot += kThreads) {
      maximum = fmaxf(maximum, weights[slot]);
    }
    const float sink = SinkOf(args.step.sinks, head);
    maximum = fmaxf(MaxOverBlock<kWarps>(maximum, shared), sink);
    float sum = 0.0F;
    for (int64_t slot = threadIdx.x; slot < NumKeys(); slot += kThreads) {
      weights[slot] = __expf(weights[slot] - maximum);
      sum += weights[slot];
    }
    sum = SumOverBlock<kWarps>(sum, shared) + __expf(sink - maximum);
    for (int64_t slot = threadIdx.x; slot < NumKeys(); slot += kThreads) weights[slot] /= sum;
    __syncthreads();
  }

  __device__ void SumValues(int64_t head) const {
    const int vector = threadIdx.x % kLanes;
    const bool has_dims = vector * kVectorElements < layout.head_dim;
    const float* weights = Weights(head);
    float weighted[kVectorElements] = {};
    for (int64_t first = threadIdx.x / kLanes; first < NumKeys(); first += kLoads * kParts) {
      typename Values::Vector bits[kLoads];
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        const int64_t slot = first + load * kParts;
        if (slot < NumKeys() && has_dims) {
          bits[load] = Values::template Load<ReadWritten>(row.kv, layout, {kv_head, slot, vector});
        }
      }
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        const int64_t slot = first + load * kParts;
        const float weight = slot < NumKeys() ? weights[slot] : 0.0F;
        float value[kVectorElements];
        Values::Widen(bits[load], value);
#pragma unroll
        for (int i = 0; i < kVectorElements; ++i) weighted[i] = fmaf(weight, value[i], weighted[i]);
      }
    }
    constexpr int kPartFloats = kLanes * kVectorElements;
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      if (has_dims) {
        shared[threadIdx.x / kLanes * kPartFloats + Element<Values>(vector, i)] = weighted[i];
      }
    }
    __syncthreads();
    float* out = args.step.out + row.token_offset * args.step.out_stride + head * layout.head_dim;
    for (int64_t d = threadIdx.x; d < layout.head_dim; d += kThreads) {
      float sum = 0.0F;
      for (int part = 0; part < kParts; ++part) sum += shared[part * kPartFloats + d];
      out[d] = sum;
    }
    __syncthreads();
  }

  // Heads are added up in their order, then to the score.
  __device__ void AddScores(int64_t first_head, int64_t num_heads) const {
    if (!UsesScores(args.step.kind)) return;
    for (int64_t slot = threadIdx.x; slot < NumKeys(); slot += kThreads) {
      float sum = 0.0F;
      for (int64_t head = 0; head < num_heads; ++head) sum += Weights(first_head + head)[slot];
      *Score(slot) += sum;
    }
    __syncthreads();
  }

  __device__ Candidate FindVictim() const {
    const PositionRange range = Candidates(args.step.kind, row.keep, row.position);
    const int64_t first_seen = FirstSeen(row.keep, row.position + 1);
    Candidate victim = {0.0F, 0, -1};
    for (int64_t slot = threadIdx.x; slot < row.num_held; slot += kThreads) {
      const int32_t position = *Position(slot);
      if (position < range.first || position > range.last) continue;
      const float score =
          UsesScores(args.step.kind) ? Standing(*Score(slot), position, first_seen) : 0.0F;
      const Candidate candidate = {score, position, static_cast<int32_t>(slot)};
      if (GoesBefore(candidate, victim)) victim = candidate;
    }
    auto* candidates = reinterpret_cast<Candidate*>(shared);
    candidates[threadIdx.x] = victim;
    __syncthreads();
    for (int step = kThreads / 2; step > 0; step /= 2) {
      if (threadIdx.x < step && GoesBefore(candidates[threadIdx.x + step], candidates[threadIdx.x]))
        candidates[threadIdx.x] = candidates[threadIdx.x + step];
      __syncthreads();
    }
    return candidates[0];
  }

  // The new token takes the victim's slot.
  __device__ void Evict() const {
    const Candidate victim = FindVictim();
    if (victim.slot < 0) return;  // the contract says that there is one
    const TokenCopy<Form> copy = {{layout, kv_head}, {layout, kv_head}};
    for (int64_t at = threadIdx.x; at < copy.words(); at += kThreads) {
      copy.Word(row.kv, row.num_held, row.kv, victim.slot, at);
    }
    if (threadIdx.x == 0) {
      *Score(victim.slot) = *Score(row.num_held);
      *Position(victim.slot) = static_cast<int32_t>(row.position);
    }
  }
};

// grid: (row, KV head of its cache).
template <typename Format, int kLanes>
__global__ void __launch_bounds__(kThreads) BudgetKernel(const GpuBudgetAttentionArgs args) {
  // Holds the partial sums of values, then the candidates of all threads.
  alignas(16) __shared__ float shared[kThreads * kVectorElements];
  static_assert(sizeof(shared) >= kThreads * sizeof(Candidate));
  const BudgetAttentionArgs& step = args.step;
  const BudgetAttentionRow& row = step.rows.data()[blockIdx.x];
  const int64_t group = step.num_heads / step.num_kv_heads;
  const BudgetStep<Format, kLanes> work = {
      args, row,
      KvLayoutWithState(step.RunHeads(), step.head_dim, Format::Form::kBits, step.kv_block_fill),
      blockIdx.y, shared};
  const int64_t first_head = (row.kv_head + work.kv_head) * group;
  work.Append();
  if (step.turns.exist()) work.FindTurns();
  for (int64_t head = first_head; head < first_head + group; ++head) {
    work.ScoreKeys(head);
    work.Softmax(head);
    work.SumValues(head);
  }
  work.AddScores(first_head, group);
  if (work.NumKeys() > row.keep.slots()) work.Evict();
}

template <typename Format>
void LaunchDims(const GpuBudgetAttentionArgs& args, Stream& stream) {
  const dim3 grid(static_cast<unsigned>(args.step.rows.size()),
                  static_cast<unsigned>(args.step.RunHeads()));
  WithLanes(args.step.head_dim, [&](auto lanes) {
    LaunchKernel(BudgetKernel<Format, decltype(lanes)::value>, grid, kThreads, args, stream,
                 "budget_attention launch");
  });
}

}  // namespace

void BudgetAttentionAsync(const GpuBudgetAttentionArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.step.head_dim % kVectorElements == 0 && args.step.head_dim <= kMaxGpuHeadDim);
  if (args.step.rows.empty()) return;
  WithFormat(args.step.kv_dtype, args.step.kv_bits,
             [&](auto format) { LaunchDims<decltype(format)>(args, stream); });
}

}  // namespace spillway::kernels
