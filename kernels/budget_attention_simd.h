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
// From the state that is met to what is fetched meanwhile. Of 8 slots: a half of what is updated at
// a time, as the rest would not stay near while values are read.
constexpr int64_t kStateAheadBlocks = 4;

// How much a token of this score should go: -score. One of no score at all goes first.
inline Simd::F Urgency(Simd::F score) {
  return Simd::Min(Simd::Sub(Simd::Zero(), score), Simd::Set(kInfinity));  // the second for NaN
}

// State is met as it lies: a register has neighbouring slots of a block, of one KV head or, where
// a block has fewer slots than the register lanes, of two. kGroup: queries of a KV head, or 0 where
// scores do not matter.
template <int64_t kBlockSlots, int kGroup>
struct Update {
  static constexpr int64_t kHeads = MaxOf(1, kLanes / kBlockSlots);  // of a register
  static constexpr int64_t kHeadLanes = kLanes / kHeads;
  static_assert(kHeads <= 2 && kBlockSlots % kHeadLanes == 0);

  // One register's slots, of whichever heads.
  struct Slots {
    int64_t first;
    int64_t offset;  // bytes from the state's begin
    int64_t ahead;   // bytes to the state that is fetched meanwhile
    Simd::F numbers;
    Simd::M held;  // those that hold tokens
  };

  // Where a register's state and weights lie. Stepped from one to the next: worked out anew from
  // the task, which every store may have changed for all the compiler knows, it took as many
  // instructions again.
  struct Place {
    std::byte* scores;
    const std::byte* positions;
    const float* weights;  // of 64 slots, the queries behind one another
    const float* factors;  // [query][lane]
    float* best;           // urgencies, then victims

    void NextHeads(int64_t head_bytes) {
      scores += kHeads * head_bytes;
      positions += kHeads * head_bytes;
      weights += kHeads * kGroup * kAttentionKeys;
      factors += kGroup * kLanes;
      best += kVictimFloats;
    }
  };

  const BudgetTask& task;
  Simd::F below;  // positions that may go lie between these two
  Simd::F above;
  Simd::F head_slots;  // the lanes' slots, counted for each head from 0
  Simd::M low_head;    // the lanes of a register's first head
  // Of 64 slots, [register of heads][query of the group][lane].
  alignas(64) float factors[kDecodeQueries * kLanes];

  explicit Update(const BudgetTask& budget_task);
  Slots SlotsAt(int64_t first) const;
  Place PlaceOf(const Slots& slots) const;
  // Of a head, as bits.
  static uint32_t LanesOf(int64_t head) {
    return ((uint32_t{1} << kHeadLanes) - 1) << head % kHeads * kHeadLanes;
  }
  int64_t Last(int64_t head) const { return MinOf(head + kHeads, task.num_heads) - 1; }
  float* UrgenciesOf(int64_t head) const { return task.best + head / kHeads * kVictimFloats; }
  float* VictimsOf(int64_t head) const { return UrgenciesOf(head) + kLanes; }

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

  void SpreadFactors(int64_t slot);
  template <int64_t kMet>
  static Simd::F Weights(const Place& at);
  template <int64_t kMet>
  Simd::M MeetSlots(const Slots& slots, const Place& at) const;
  template <int64_t kMet>
  void MeetRegister(int64_t head, const Slots& slots, const Place& at) const;
  void MeetHeads(const Slots& slots) const;
  void BreakTies(int64_t head, int64_t first_slot, uint32_t lanes) const;
  bool IsNewer(int64_t head, int64_t slot, int64_t than) const;
  int32_t PositionAt(int64_t head, int64_t slot) const;
  int64_t Victim(int64_t head) const;
  void Begin() const;
  void Meet(int64_t begin);
  void FindVictims() const;
};

template <int64_t kBlockSlots, int kGroup>
Update<kBlockSlots, kGroup>::Update(const BudgetTask& budget_task)
    : task(budget_task),
      below(Simd::Set(static_cast<float>(task.first_candidate - 1))),
      above(Simd::Set(static_cast<float>(task.last_candidate + 1))) {
  const Simd::F lanes = Simd::Load(kLaneNumbers);
  const Simd::F head_lanes = Simd::Set(static_cast<float>(kHeadLanes));
  low_head = Simd::Less(lanes, head_lanes);
  head_slots = Simd::Select(low_head, lanes, Simd::Sub(lanes, head_lanes));
}

template <int64_t kBlockSlots, int kGroup>
typename Update<kBlockSlots, kGroup>::Slots Update<kBlockSlots, kGroup>::SlotsAt(
    int64_t first) const {
  const Simd::F numbers = Simd::Add(head_slots, Simd::Set(static_cast<float>(first)));
  const bool is_near_end = first + kStateAheadBlocks * kBlockSlots >= task.num_held;
  return {first, first / kBlockSlots * task.block_bytes + first % kBlockSlots * 4,
          is_near_end ? 0 : kStateAheadBlocks * task.block_bytes, numbers,
          Simd::Less(numbers, Simd::Set(static_cast<float>(task.num_held)))};
}

// Of the first heads.
template <int64_t kBlockSlots, int kGroup>
typename Update<kBlockSlots, kGroup>::Place Update<kBlockSlots, kGroup>::PlaceOf(
    const Slots& slots) const {
  const float* weights = nullptr;
  if constexpr (kGroup > 0) {
    const int64_t begin = slots.first / kAttentionKeys * kAttentionKeys;
    weights = task.weights + begin * task.num_heads * kGroup + slots.first % kAttentionKeys;
  }
  return {task.scores + slots.offset, task.positions + slots.offset, weights, factors, task.best};
}

// The factors of the 64 slots from `slot`, each in all lanes of its head.
template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::SpreadFactors(int64_t slot) {
  const float* of_block = task.factors + slot / kAttentionKeys * kDecodeQueries;
  float* to = factors;
  for (int64_t head = 0; head < task.num_heads; head += kHeads) {
    for (int64_t query = 0; query < kGroup; ++query, to += kLanes) {
      const float low = of_block[head * kGroup + query];
      const float high = of_block[Last(head) * kGroup + query];
      Simd::Store(to, Simd::Select(low_head, Simd::Set(low), Simd::Set(high)));
    }
  }
}

// Of the slots' tokens, those of the group's queries added up in their order.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kMet>
inline __attribute__((always_inline)) Simd::F Update<kBlockSlots, kGroup>::Weights(
    const Place& at) {
  constexpr int64_t kToHigh = (kMet - 1) * kGroup * kAttentionKeys;
  Simd::F sum = Simd::Zero();
#pragma GCC unroll 2
  for (int64_t query = 0; query < kGroup; ++query) {
    const float* low = at.weights + query * kAttentionKeys;
    const Simd::F weights = kHeads == 1 ? Simd::Load(low) : Simd::LoadHalves(low, low + kToHigh);
    const Simd::F factor = Simd::Load(at.factors + query * kLanes);
    sum = query == 0 ? Simd::Mul(weights, factor) : Simd::Fma(weights, factor, sum);
  }
  return sum;
}

// Adds the weights to the scores, then keeps the lanes' tokens that should go first of those seen:
// of the highest urgency. Returns those as urgent as what was seen before.
template <int64_t kBlockSlots, int kGroup>
template <int64_t kMet>
inline __attribute__((always_inline)) Simd::M Update<kBlockSlots, kGroup>::MeetSlots(
    const Slots& slots, const Place& at) const {
  Simd::F urgency = Simd::Zero();  // where scores do not matter
  if constexpr (kGroup > 0) {
    __builtin_prefetch(at.scores + slots.ahead, 1, 3);
    const Simd::F score = Simd::Add(LoadState<kMet>(at.scores), Weights<kMet>(at));
    StoreState<kMet>(at.scores, score);
    urgency = Urgency(score);
  }
  __builtin_prefetch(at.positions + slots.ahead, 0, 3);
  const Simd::F position = Simd::FromInts(LoadState<kMet>(at.positions));
  const Simd::M may_go = Simd::Both(Simd::Less(below, position), Simd::Less(position, above));
  Simd::M candidates = Simd::Both(slots.held, may_go);
  if constexpr (kMet < kHeads) candidates = Simd::Both(candidates, low_head);
  const Simd::F highest = Simd::Load(at.best);
  const Simd::M first = Simd::Both(candidates, Simd::Less(highest, urgency));
  Simd::Store(at.best, Simd::Select(first, urgency, highest));
  float* victims = at.best + kLanes;
  Simd::Store(victims, Simd::Select(first, slots.numbers, Simd::Load(victims)));
  return Simd::Both(candidates, Simd::Equal(highest, urgency));
}

template <int64_t kBlockSlots, int kGroup>
template <int64_t kMet>
inline __attribute__((always_inline)) void Update<kBlockSlots, kGroup>::MeetRegister(
    int64_t head, const Slots& slots, const Place& at) const {
  const uint32_t equal = Simd::Bits(MeetSlots<kMet>(slots, at));
  if (equal != 0) BreakTies(head, slots.first, equal);
}

template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::MeetHeads(const Slots& slots) const {
  const int64_t num_heads = task.num_heads;
  const int64_t head_bytes = task.head_bytes;
  Place at = PlaceOf(slots);
  int64_t head = 0;
  for (; head + kHeads <= num_heads; head += kHeads, at.NextHeads(head_bytes))
    MeetRegister<kHeads>(head, slots, at);
  if constexpr (kHeads == 2) {
    if (head < num_heads) MeetRegister<1>(head, slots, at);
  }
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
  const Simd::F all = Simd::Load(UrgenciesOf(head));
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
    Simd::Store(UrgenciesOf(head), Simd::Set(-kInfinity));
    Simd::Store(VictimsOf(head), Simd::Set(-1.0F));
  }
}

template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::Meet(int64_t begin) {
  if constexpr (kGroup > 0) SpreadFactors(begin);
  const int64_t end = MinOf(begin + kAttentionKeys, task.num_held);
  for (int64_t slot = begin; slot < end; slot += kHeadLanes) MeetHeads(SlotsAt(slot));
}

template <int64_t kBlockSlots, int kGroup>
void Update<kBlockSlots, kGroup>::FindVictims() const {
  for (int64_t head = 0; head < task.num_heads; ++head) task.victims[head] = Victim(head);
}

template <int64_t kBlockSlots, int kGroup>
void UpdateBudgetAs(const BudgetTask& task, int64_t begin) {
  Update<kBlockSlots, kGroup> update(task);
  if (begin == 0) update.Begin();
  update.Meet(begin);
  if (begin + kAttentionKeys >= task.num_held) update.FindVictims();
}

template <int kGroup>
void UpdateGroup(const BudgetTask& task, int64_t begin) {
  if (task.block_slots == kKvBlockSlots) return UpdateBudgetAs<kKvBlockSlots, kGroup>(task, begin);
  UpdateBudgetAs<kKvCodedBlockSlots, kGroup>(task, begin);
}

inline void UpdateBudgetSimd(const BudgetTask& task, int64_t begin) {
  static_assert(kDecodeGroup == 2);  // more queries than that come as one
  if (task.weights == nullptr) return UpdateGroup<0>(task, begin);
  task.group == 1 ? UpdateGroup<1>(task, begin) : UpdateGroup<2>(task, begin);
}

}  // namespace
}  // namespace spillway::kernels
