// The bookkeeping of BudgetAttention, compiled once per instruction set. Positions and slots are
// compared as floats, exact below 2^24.
#pragma once

#include <cstdint>

#include "kernels/attention/attention_isa.h"
#include "kernels/attention/budget_attention_isa.h"
#include "kernels/simd/simd.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kLanes = Simd::kLanes;
constexpr float kInfinity = __builtin_inff();
constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Score by which tokens are compared, a NaN as the lowest (OrderedScore of kv_eviction.h):
// Simd::Max gives its second operand where one is NaN.
inline Simd::F Standing(Simd::F score) { return Simd::Max(score, Simd::Set(-kInfinity)); }

constexpr int kAnyGroup = 3;  // its size is known at run time

// One BudgetTask. A register holds neighbouring slots of a block, of one KV head or, where a block
// has fewer slots than the register lanes, of two. Its heads are visited over kAttentionKeys slots
// before the next heads, so that the lowest tokens so far stay in registers. kGroup: queries of a
// KV head where it is known at compile time, or 0 where scores do not matter.
template <int64_t kBlockSlots, int kGroup>
struct Update {
  static constexpr int64_t kHeads = MaxOf(1, kLanes / kBlockSlots);  // of a register
  static constexpr int64_t kHeadLanes = kLanes / kHeads;
  static_assert(kHeads <= 2 && kBlockSlots % kHeadLanes == 0 && kAttentionKeys % kBlockSlots == 0);

  // The lowest candidate so far in each lane: its standing and its slot.
  struct Lowest {
    Simd::F standings;
    Simd::F slots;
  };
  // Addresses of the state and the weights of a register's heads at the slots being visited.
  struct Place {
    int64_t head;
    int64_t first_slot;
    std::byte* scores;
    const std::byte* positions;
    const float* weights;  // of the first head's first query
    int64_t ahead;         // bytes to the state that is prefetched meanwhile
  };
  using Factors = Simd::F[kGroup == kAnyGroup ? kDecodeQueries : MaxOf(1, kGroup)];

  const BudgetTask& task;
  Simd::F below;  // positions that may go lie between these two
  Simd::F above;
  Simd::F first_seen;
  Simd::F held_end;
  Simd::F head_slots;  // the lanes' slots, counted for each head from 0
  Simd::M low_head;    // the lanes of a register's first head

  explicit Update(const BudgetTask& budget_task);
  int64_t group() const { return kGroup == kAnyGroup ? task.group : kGroup; }
  // Bits of the lanes that hold a head.
  static uint32_t LanesOf(int64_t head) {
    return ((uint32_t{1} << kHeadLanes) - 1) << head % kHeads * kHeadLanes;
  }
  float* StandingsOf(int64_t head) const { return task.lowest + head / kHeads * kLowestFloats; }
  float* SlotsOf(int64_t head) const { return StandingsOf(head) + kLanes; }

  // kUsedHeads: heads in the register, 1 for the last of an odd number. Behind that head's state
  // lies another worker's, or nothing: no lane there is written or holds a candidate.
  template <int64_t kUsedHeads>
  static Simd::F LoadState(const void* from) {
    const auto* state = static_cast<const float*>(from);
    return kUsedHeads == kHeads ? Simd::Load(state) : Simd::LoadPart(state, kHeadLanes);
  }
  template <int64_t kUsedHeads>
  static void StoreState(void* to, Simd::F v) {
    auto* state = static_cast<float*>(to);
    kUsedHeads == kHeads ? Simd::Store(state, v) : Simd::StorePart(state, v, kHeadLanes);
  }

  Place PlaceOf(int64_t head, int64_t first_slot) const;
  void Advance(Place& at) const;
  template <int64_t kUsedHeads>
  void LoadFactors(const Place& at, Factors& factors) const;
  template <int64_t kUsedHeads>
  Simd::F Weights(const Place& at, const Factors& factors) const;
  template <int64_t kUsedHeads>
  Simd::F AddWeights(const Place& at, const Factors& factors) const;
  template <int64_t kUsedHeads>
  static Simd::F Positions(const Place& at);
  template <int64_t kUsedHeads>
  Simd::M Candidates(Simd::F positions, Simd::F slots) const;
  void Keep(const Place& at, Simd::M candidates, Lowest found, Lowest& lowest) const;
  template <int64_t kUsedHeads>
  void VisitHeads(int64_t head, int64_t begin) const;
  void BreakTies(const Place& at, uint32_t lanes) const;
  bool IsNewer(int64_t head, int64_t slot, int64_t than) const;
  int32_t PositionAt(int64_t head, int64_t slot) const;
  int64_t Victim(int64_t head) const;
  void ResetLowest() const;
  void VisitSlots(int64_t begin) const;
  void Run() const;
};

template <int64_t kBlockSlots, int kGroup>
Update<kBlockSlots, kGroup>::Update(const BudgetTask& budget_task)
    : task(budget_task),
      below(Simd::Set(static_cast<float>(task.first_candidate - 1))),
      above(Simd::Set(static_cast<float>(task.last_candidate + 1))),
      first_seen(Simd::Set(static_cast<float>(task.first_seen))),
      held_end(Simd::Set(static_cast<float>(task.num_held))) {
  const Simd::F lanes = Simd::Load(kLaneNumbers);
  const Simd::F head_lanes = Simd::Set(static_cast<float>(kHeadLanes));
  low_head = Simd::Less(lanes, head_lanes);
  head_slots = Simd::Select(low_head, lanes, Simd::Sub(lanes, head_lanes));
}

// Place of the first of kAttentionKeys slots. Prefetches reach as far back, to the slots that are
// visited next.
template <int64_t kBlockSlots, int kGroup>
inline typename Update<kBlockSlots, kGroup>::Place Update<kBlockSlots, kGroup>::PlaceOf(
    int64_t head, int64_t first_slot) const {
  constexpr int64_t kBlocks = kAttentionKeys / kBlockSlots;
  const int64_t offset = first_slot / kBlockSlots * task.block_bytes + head * task.head_bytes;
  const float* weights = nullptr;
  if constexpr (kGroup > 0)
    weights = task.weights + (first_slot * task.num_heads + head * kAttentionKeys) * group();
  return {head,
          first_slot,
          task.scores + offset,
          task.positions + offset,
          weights,
          first_slot == 0 ? 0 : -kBlocks * task.block_bytes};
}

// Moves to the register's next slots.
template <int64_t kBlockSlots, int kGroup>
inline void Update<kBlockSlots, kGroup>::Advance(Place& at) const {
  at.first_slot += kHeadLanes;
  const bool same_block = at.first_slot % kBlockSlots != 0;
  const int64_t bytes =
      same_block ? kHeadLanes * 4 : task.block_bytes - (kBlockSlots - kHeadLanes) * 4;
  at.scores += bytes;
  at.positions += bytes;
  at.weights += kGroup > 0 ? kHeadLanes : 0;
}

// Loads the factor of each query of the group into the lanes of its head.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kUsedHeads>
inline void Update<kBlockSlots, kGroup>::LoadFactors(const Place& at, Factors& factors) const {
  const float* low =
      task.factors + at.first_slot / kAttentionKeys * kDecodeQueries + at.head * group();
  const int64_t num_queries = group();
#pragma GCC unroll 2
  for (int64_t query = 0; query < num_queries; ++query, ++low) {
    const float high = low[(kUsedHeads - 1) * num_queries];
    factors[query] = Simd::Select(low_head, Simd::Set(*low), Simd::Set(high));
  }
}

// Weights of the group's queries, added up in their order.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kUsedHeads>
inline __attribute__((always_inline)) Simd::F Update<kBlockSlots, kGroup>::Weights(
    const Place& at, const Factors& factors) const {
  const int64_t num_queries = group();
  const int64_t to_high = (kUsedHeads - 1) * num_queries * kAttentionKeys;
  Simd::F sum = Simd::Zero();
#pragma GCC unroll 2
  for (int64_t query = 0; query < num_queries; ++query) {
    const float* low = at.weights + query * kAttentionKeys;
    const Simd::F weights = kHeads == 1 ? Simd::Load(low) : Simd::LoadHalves(low, low + to_high);
    sum = query == 0 ? Simd::Mul(weights, factors[query]) : Simd::Fma(weights, factors[query], sum);
  }
  return sum;
}

// Adds the weights to the scores. Returns their standings.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kUsedHeads>
inline __attribute__((always_inline)) Simd::F Update<kBlockSlots, kGroup>::AddWeights(
    const Place& at, const Factors& factors) const {
  if constexpr (kGroup == 0) return Simd::Zero();  // scores do not matter
  __builtin_prefetch(at.scores + at.ahead, 1, 3);
  const Simd::F scores =
      Simd::Add(LoadState<kUsedHeads>(at.scores), Weights<kUsedHeads>(at, factors));
  StoreState<kUsedHeads>(at.scores, scores);
  return Standing(scores);
}

template <int64_t kBlockSlots, int kGroup>
template <int64_t kUsedHeads>
inline __attribute__((always_inline)) Simd::F Update<kBlockSlots, kGroup>::Positions(
    const Place& at) {
  __builtin_prefetch(at.positions + at.ahead, 0, 3);
  return Simd::FromInts(LoadState<kUsedHeads>(at.positions));
}

// Mask of the slots that hold candidates: tokens that may be evicted.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kUsedHeads>
inline __attribute__((always_inline)) Simd::M Update<kBlockSlots, kGroup>::Candidates(
    Simd::F positions, Simd::F slots) const {
  const Simd::M may_go = Simd::Both(Simd::Less(below, positions), Simd::Less(positions, above));
  const Simd::M candidates = Simd::Both(Simd::Less(slots, held_end), may_go);
  return kUsedHeads == kHeads ? candidates : Simd::Both(candidates, low_head);
}

// Keeps the lower of `found` and the lowest so far, in each lane.
template <int64_t kBlockSlots, int kGroup>
inline __attribute__((always_inline)) void Update<kBlockSlots, kGroup>::Keep(const Place& at,
                                                                             Simd::M candidates,
                                                                             Lowest found,
                                                                             Lowest& lowest) const {
  const Simd::M equal = Simd::Both(candidates, Simd::Equal(found.standings, lowest.standings));
  const Simd::M lower = Simd::Both(candidates, Simd::Less(found.standings, lowest.standings));
  lowest = {Simd::Select(lower, found.standings, lowest.standings),
            Simd::Select(lower, found.slots, lowest.slots)};
  const uint32_t ties = Simd::Bits(equal);
  if (ties == 0) return;
  float* slots = SlotsOf(at.head);
  Simd::Store(slots, lowest.slots);
  BreakTies(at, ties);
  lowest.slots = Simd::Load(slots);
}

// Adds the weights to the scores of kUsedHeads heads and kAttentionKeys slots, and keeps the lowest
// candidates.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kUsedHeads>
void Update<kBlockSlots, kGroup>::VisitHeads(int64_t head, int64_t begin) const {
  Place at = PlaceOf(head, begin);
  Factors factors;
  LoadFactors<kUsedHeads>(at, factors);
  Lowest lowest = {Simd::Load(StandingsOf(head)), Simd::Load(SlotsOf(head))};
  Simd::F slots = Simd::Add(head_slots, Simd::Set(static_cast<float>(begin)));
  const Simd::F step = Simd::Set(static_cast<float>(kHeadLanes));
  const int64_t end = MinOf(begin + kAttentionKeys, task.num_held);
  for (; at.first_slot < end; Advance(at), slots = Simd::Add(slots, step)) {
    const Simd::F scores = AddWeights<kUsedHeads>(at, factors);
    const Simd::F positions = Positions<kUsedHeads>(at);
    const Simd::F standings =
        Simd::SelectLess(positions, first_seen, Simd::Set(-kInfinity), scores);
    Keep(at, Candidates<kUsedHeads>(positions, slots), {standings, slots}, lowest);
  }
  Simd::Store(StandingsOf(head), lowest.standings);
  Simd::Store(SlotsOf(head), lowest.slots);
}

// Keeps the token of the highest position among equal scores. Positions are looked up only here.
template <int64_t kBlockSlots, int kGroup>
__attribute__((noinline)) void Update<kBlockSlots, kGroup>::BreakTies(const Place& at,
                                                                      uint32_t lanes) const {
  float* slots = SlotsOf(at.head);
  for (; lanes != 0; lanes &= lanes - 1) {
    const int64_t lane = __builtin_ctz(lanes);
    const int64_t slot = at.first_slot + lane % kHeadLanes;
    if (IsNewer(at.head + lane / kHeadLanes, slot, static_cast<int64_t>(slots[lane])))
      slots[lane] = static_cast<float>(slot);
  }
}

template <int64_t kBlockSlots, int kGroup>
int32_t Update<kBlockSlots, kGroup>::PositionAt(int64_t head, int64_t slot) const {
  int32_t position = 0;
  const std::byte* of_block = task.positions + slot / kBlockSlots * task.block_bytes;
  const std::byte* at = of_block + head * task.head_bytes + slot % kBlockSlots * 4;
  __builtin_memcpy(&position, at, sizeof(position));
  return position;
}

template <int64_t kBlockSlots, int kGroup>
bool Update<kBlockSlots, kGroup>::IsNewer(int64_t head, int64_t slot, int64_t than) const {
  return than < 0 || (slot >= 0 && PositionAt(head, slot) > PositionAt(head, than));
}

// Slot of the head's lowest candidate over all its lanes; -1 where there is none.
template <int64_t kBlockSlots, int kGroup>
int64_t Update<kBlockSlots, kGroup>::Victim(int64_t head) const {
  const float* slots = SlotsOf(head);
  const Simd::F all = Simd::Load(StandingsOf(head));
  const Simd::F none = Simd::Set(kInfinity);
  Simd::F standings = all;
  if (kHeads == 2)
    standings =
        head % 2 == 0 ? Simd::Select(low_head, all, none) : Simd::Select(low_head, none, all);
  const Simd::M lowest = Simd::Equal(standings, Simd::Set(Simd::MinOf(standings)));
  uint32_t lanes = Simd::Bits(lowest) & LanesOf(head);
  auto victim = static_cast<int64_t>(slots[__builtin_ctz(lanes)]);
  for (lanes &= lanes - 1; lanes != 0; lanes &= lanes - 1) {
    const auto other = static_cast<int64_t>(slots[__builtin_ctz(lanes)]);
    if (IsNewer(head, other, victim)) victim = other;
  }
  return victim;
}

template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::ResetLowest() const {
  for (int64_t head = 0; head < task.num_heads; head += kHeads) {
    Simd::Store(StandingsOf(head), Simd::Set(kInfinity));
    Simd::Store(SlotsOf(head), Simd::Set(-1.0F));
  }
}

template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::VisitSlots(int64_t begin) const {
  int64_t head = 0;
  for (; head + kHeads <= task.num_heads; head += kHeads) VisitHeads<kHeads>(head, begin);
  if constexpr (kHeads == 2) {
    if (head < task.num_heads) VisitHeads<1>(head, begin);
  }
}

// Visits the last slots first: attention read them last, so they are in the nearest cache. In the
// other order a state larger than that cache would have left it before it is read.
template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::Run() const {
  ResetLowest();
  const int64_t last = (task.num_held - 1) / kAttentionKeys * kAttentionKeys;
  for (int64_t begin = last; begin >= 0; begin -= kAttentionKeys) VisitSlots(begin);
  for (int64_t head = 0; head < task.num_heads; ++head) task.victims[head] = Victim(head);
}

template <int kGroup>
void UpdateGroup(const BudgetTask& task) {
  if (task.block_slots == kKvBlockSlots) return Update<kKvBlockSlots, kGroup>(task).Run();
  Update<kKvCodedBlockSlots, kGroup>(task).Run();
}

inline void UpdateBudgetSimd(const BudgetTask& task) {
  if (task.weights == nullptr) return UpdateGroup<0>(task);
  if (task.group == 1) return UpdateGroup<1>(task);
  task.group == 2 ? UpdateGroup<2>(task) : UpdateGroup<kAnyGroup>(task);
}

}  // namespace
}  // namespace spillway::kernels
