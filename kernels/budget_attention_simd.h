// The bookkeeping of BudgetAttention, compiled once per instruction set. Positions and slots are
// compared as floats, exact below 2^24.
#pragma once

#include <cstdint>

#include "kernels/attention_isa.h"
#include "kernels/budget_attention_isa.h"
#include "kernels/simd.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kLanes = Simd::kLanes;
constexpr float kInfinity = __builtin_inff();
constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// How much a token stays. One of a score of NaN goes first.
inline Simd::F Standing(Simd::F score) { return Simd::Max(score, Simd::Set(-kInfinity)); }

// A register has neighbouring slots of a block, of one KV head or, where a block has fewer slots
// than the register lanes, of two. A register's heads are met over kAttentionKeys slots before the
// next heads, so that the lowest tokens so far stay in registers. kGroup: queries of a KV head, or
// 0 where scores do not matter.
template <int64_t kBlockSlots, int kGroup>
struct Update {
  static constexpr int64_t kHeads = MaxOf(1, kLanes / kBlockSlots);  // of a register
  static constexpr int64_t kHeadLanes = kLanes / kHeads;
  static_assert(kHeads <= 2 && kBlockSlots % kHeadLanes == 0 && kAttentionKeys % kBlockSlots == 0);

  // What a register's lanes know of the slots they met: of those that may go the lowest standing,
  // and its slot.
  struct Lowest {
    Simd::F standing;
    Simd::F victim;
  };
  // A register's slots of some KV block.
  struct Place {
    std::byte* scores;
    const std::byte* positions;
    const float* weights;  // of the first head's first query
    int64_t ahead;         // bytes to the state that is fetched meanwhile
  };

  const BudgetTask& task;
  Simd::F below;  // positions that may go lie between these two
  Simd::F above;
  Simd::F num_held;
  Simd::F head_slots;  // the lanes' slots, counted for each head from 0
  Simd::M low_head;    // the lanes of a register's first head

  explicit Update(const BudgetTask& budget_task);
  // Of a head, as bits.
  static uint32_t LanesOf(int64_t head) {
    return ((uint32_t{1} << kHeadLanes) - 1) << head % kHeads * kHeadLanes;
  }
  float* StandingsOf(int64_t head) const { return task.best + head / kHeads * kVictimFloats; }
  float* VictimsOf(int64_t head) const { return StandingsOf(head) + kLanes; }

  // kMet: heads of the register that there are. Behind the last head's state lies another worker's,
  // or nothing: no lane there is written, or a candidate.
  template <int64_t kMet>
  static Simd::F LoadState(const void* from) {
    const auto* state = static_cast<const float*>(from);
    return kMet == kHeads ? Simd::Load(state) : Simd::LoadPart(state, kHeadLanes);
  }
  template <int64_t kMet>
  static void StoreState(void* to, Simd::F v) {
    auto* state = static_cast<float*>(to);
    kMet == kHeads ? Simd::Store(state, v) : Simd::StorePart(state, v, kHeadLanes);
  }

  Place PlaceOf(int64_t head, int64_t begin) const;
  Simd::F Factor(int64_t head, int64_t num_met, int64_t query, int64_t begin) const;
  template <int64_t kMet>
  static Simd::F Weights(const float* of_slots, const Simd::F (&factors)[2]);
  template <int64_t kMet>
  void MeetHeads(int64_t head, int64_t begin) const;
  void BreakTies(int64_t head, int64_t first_slot, uint32_t lanes) const;
  bool IsNewer(int64_t head, int64_t slot, int64_t than) const;
  int32_t PositionAt(int64_t head, int64_t slot) const;
  int64_t Victim(int64_t head) const;
  void Begin() const;
  void Meet(int64_t begin) const;
  void Run() const;
};

template <int64_t kBlockSlots, int kGroup>
Update<kBlockSlots, kGroup>::Update(const BudgetTask& budget_task)
    : task(budget_task),
      below(Simd::Set(static_cast<float>(task.first_candidate - 1))),
      above(Simd::Set(static_cast<float>(task.last_candidate + 1))),
      num_held(Simd::Set(static_cast<float>(task.num_held))) {
  const Simd::F lanes = Simd::Load(kLaneNumbers);
  const Simd::F head_lanes = Simd::Set(static_cast<float>(kHeadLanes));
  low_head = Simd::Less(lanes, head_lanes);
  head_slots = Simd::Select(low_head, lanes, Simd::Sub(lanes, head_lanes));
}

// Of the slots from `begin`. What is fetched is the state of the kAttentionKeys slots met next.
template <int64_t kBlockSlots, int kGroup>
inline typename Update<kBlockSlots, kGroup>::Place Update<kBlockSlots, kGroup>::PlaceOf(
    int64_t head, int64_t begin) const {
  const int64_t offset = begin / kBlockSlots * task.block_bytes + head * task.head_bytes;
  return {task.scores + offset, task.positions + offset,
          kGroup == 0 ? nullptr
                      : task.weights + (begin * task.num_heads + head * kAttentionKeys) * kGroup,
          begin == 0 ? 0 : -kAttentionKeys / kBlockSlots * task.block_bytes};
}

// Of a query of the head's group, in the lanes of the head.
template <int64_t kBlockSlots, int kGroup>
inline Simd::F Update<kBlockSlots, kGroup>::Factor(int64_t head, int64_t num_met, int64_t query,
                                                   int64_t begin) const {
  const float* of_head =
      task.factors + begin / kAttentionKeys * kDecodeQueries + head * kGroup + query;
  return Simd::Select(low_head, Simd::Set(*of_head), Simd::Set(of_head[(num_met - 1) * kGroup]));
}

// Of a register's tokens, those of the group's queries added up in their order.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kMet>
inline __attribute__((always_inline)) Simd::F Update<kBlockSlots, kGroup>::Weights(
    const float* of_slots, const Simd::F (&factors)[2]) {
  constexpr int64_t kToHigh = (kMet - 1) * kGroup * kAttentionKeys;
  Simd::F sum = Simd::Zero();
#pragma GCC unroll 2
  for (int64_t query = 0; query < kGroup; ++query, of_slots += kAttentionKeys) {
    const Simd::F weights =
        kHeads == 1 ? Simd::Load(of_slots) : Simd::LoadHalves(of_slots, of_slots + kToHigh);
    sum = query == 0 ? Simd::Mul(weights, factors[query]) : Simd::Fma(weights, factors[query], sum);
  }
  return sum;
}

// Of kMet heads and the slots from `begin`: adds the weights to the scores, and keeps of the tokens
// that may go the lowest.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kMet>
void Update<kBlockSlots, kGroup>::MeetHeads(int64_t head, int64_t begin) const {
  Place at = PlaceOf(head, begin);
  Simd::F factors[2] = {};
#pragma GCC unroll 2
  for (int64_t query = 0; query < kGroup; ++query)
    factors[query] = Factor(head, kMet, query, begin);
  float* standings = StandingsOf(head);
  float* victims = VictimsOf(head);
  Lowest lowest = {Simd::Load(standings), Simd::Load(victims)};
  Simd::F slots = Simd::Add(head_slots, Simd::Set(static_cast<float>(begin)));
  const int64_t end = MinOf(kAttentionKeys, task.num_held - begin);
  for (int64_t slot = 0; slot < end; slot += kHeadLanes) {
    Simd::F standing = Simd::Zero();  // where scores do not matter
    if constexpr (kGroup > 0) {
      __builtin_prefetch(at.scores + at.ahead, 1, 3);
      const Simd::F score =
          Simd::Add(LoadState<kMet>(at.scores), Weights<kMet>(at.weights + slot, factors));
      StoreState<kMet>(at.scores, score);
      standing = Standing(score);
    }
    __builtin_prefetch(at.positions + at.ahead, 0, 3);
    const Simd::F position = Simd::FromInts(LoadState<kMet>(at.positions));
    const Simd::M may_go = Simd::Both(Simd::Less(below, position), Simd::Less(position, above));
    Simd::M candidates = Simd::Both(Simd::Less(slots, num_held), may_go);
    if constexpr (kMet < kHeads) candidates = Simd::Both(candidates, low_head);
    const uint32_t equal =
        Simd::Bits(Simd::Both(candidates, Simd::Equal(standing, lowest.standing)));
    const Simd::M first = Simd::Both(candidates, Simd::Less(standing, lowest.standing));
    lowest = {Simd::Select(first, standing, lowest.standing),
              Simd::Select(first, slots, lowest.victim)};
    if (equal != 0) {
      Simd::Store(victims, lowest.victim);
      BreakTies(head, begin + slot, equal);
      lowest.victim = Simd::Load(victims);
    }
    slots = Simd::Add(slots, Simd::Set(static_cast<float>(kHeadLanes)));
    const bool in_block = (slot + kHeadLanes) % kBlockSlots != 0;
    const int64_t step =
        in_block ? kHeadLanes * 4 : task.block_bytes - (kBlockSlots - kHeadLanes) * 4;
    at.scores += step;
    at.positions += step;
  }
  Simd::Store(standings, lowest.standing);
  Simd::Store(victims, lowest.victim);
}

// Of equal ones that of the highest position goes, which is looked up only then.
template <int64_t kBlockSlots, int kGroup>
__attribute__((noinline)) void Update<kBlockSlots, kGroup>::BreakTies(int64_t head,
                                                                      int64_t first_slot,
                                                                      uint32_t lanes) const {
  float* victims = VictimsOf(head);
  for (; lanes != 0; lanes &= lanes - 1) {
    const int64_t lane = __builtin_ctz(lanes);
    const int64_t slot = first_slot + lane % kHeadLanes;
    if (IsNewer(head + lane / kHeadLanes, slot, static_cast<int64_t>(victims[lane])))
      victims[lane] = static_cast<float>(slot);
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

// Of all its lanes; -1 where no candidate was met.
template <int64_t kBlockSlots, int kGroup>
int64_t Update<kBlockSlots, kGroup>::Victim(int64_t head) const {
  const float* victims = VictimsOf(head);
  const Simd::F all = Simd::Sub(Simd::Zero(), Simd::Load(StandingsOf(head)));
  const Simd::F none = Simd::Set(-kInfinity);
  Simd::F urgency = all;
  if (kHeads == 2)
    urgency = head % 2 == 0 ? Simd::Select(low_head, all, none) : Simd::Select(low_head, none, all);
  const Simd::M highest = Simd::Equal(urgency, Simd::Set(Simd::MaxOf(urgency)));
  uint32_t lanes = Simd::Bits(highest) & LanesOf(head);
  auto slot = static_cast<int64_t>(victims[__builtin_ctz(lanes)]);
  for (lanes &= lanes - 1; lanes != 0; lanes &= lanes - 1) {
    const auto other = static_cast<int64_t>(victims[__builtin_ctz(lanes)]);
    if (IsNewer(head, other, slot)) slot = other;
  }
  return slot;
}

template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::Begin() const {
  for (int64_t head = 0; head < task.num_heads; head += kHeads) {
    Simd::Store(StandingsOf(head), Simd::Set(kInfinity));
    Simd::Store(VictimsOf(head), Simd::Set(-1.0F));
  }
}

template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::Meet(int64_t begin) const {
  int64_t head = 0;
  for (; head + kHeads <= task.num_heads; head += kHeads) MeetHeads<kHeads>(head, begin);
  if constexpr (kHeads == 2) {
    if (head < task.num_heads) MeetHeads<1>(head, begin);
  }
}

// From the last slots to the first: what attention fetched last is still near, and where a row's
// state is more than the cache holds, from the first on none of it would be.
template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::Run() const {
  Begin();
  const int64_t last = (task.num_held - 1) / kAttentionKeys * kAttentionKeys;
  for (int64_t begin = last; begin >= 0; begin -= kAttentionKeys) Meet(begin);
  for (int64_t head = 0; head < task.num_heads; ++head) task.victims[head] = Victim(head);
}

template <int kGroup>
void UpdateGroup(const BudgetTask& task) {
  if (task.block_slots == kKvBlockSlots) return Update<kKvBlockSlots, kGroup>(task).Run();
  Update<kKvCodedBlockSlots, kGroup>(task).Run();
}

inline void UpdateBudgetSimd(const BudgetTask& task) {
  static_assert(kDecodeGroup == 2);  // more queries than that come as one
  if (task.weights == nullptr) return UpdateGroup<0>(task);
  task.group == 1 ? UpdateGroup<1>(task) : UpdateGroup<2>(task);
}

}  // namespace
}  // namespace spillway::kernels
