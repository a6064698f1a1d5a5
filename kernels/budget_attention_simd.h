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
// a block has fewer slots than the register lanes, of two.
template <int64_t kBlockSlots>
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

  const BudgetTask& task;
  Simd::F below;  // positions that may go lie between these two
  Simd::F above;
  Simd::F head_slots;  // the lanes' slots, counted for each head from 0
  Simd::M low_head;    // the lanes of a register's first head
  // Of 64 slots, [register of heads][query of the group][lane].
  alignas(64) float factors[kDecodeQueries * kLanes];

  explicit Update(const BudgetTask& budget_task);
  Slots SlotsAt(int64_t first) const;
  // Of a head, as bits.
  static uint32_t LanesOf(int64_t head) {
    return ((uint32_t{1} << kHeadLanes) - 1) << head % kHeads * kHeadLanes;
  }
  int64_t Last(int64_t head) const { return MinOf(head + kHeads, task.num_heads) - 1; }
  // Its register has all its heads. Behind the last head's state lies another worker's, or nothing:
  // no lane there is written, or a candidate.
  bool IsWhole(int64_t head) const { return kHeads == 1 || head + 1 < task.num_heads; }
  Simd::F LoadState(int64_t head, const float* from) const {
    return IsWhole(head) ? Simd::Load(from) : Simd::LoadPart(from, kHeadLanes);
  }
  void StoreState(int64_t head, float* to, Simd::F v) const {
    IsWhole(head) ? Simd::Store(to, v) : Simd::StorePart(to, v, kHeadLanes);
  }
  float* UrgenciesOf(int64_t head) const { return task.best + head / kHeads * kVictimFloats; }
  float* VictimsOf(int64_t head) const { return UrgenciesOf(head) + kLanes; }

  void SpreadFactors(int64_t slot);
  Simd::F Weights(int64_t head, const Slots& slots) const;
  Simd::F AddWeights(int64_t head, const Slots& slots, float* scores) const;
  void MeetSlots(int64_t head, const Slots& slots) const;
  void MeetCandidates(int64_t head, const Slots& slots, Simd::M candidates, Simd::F urgency) const;
  bool IsNewer(int64_t head, int64_t slot, int64_t than) const;
  int32_t PositionAt(int64_t head, int64_t slot) const;
  int64_t Victim(int64_t head) const;
  void Begin() const;
  void Meet(int64_t begin);
  void FindVictims() const;
};

template <int64_t kBlockSlots>
Update<kBlockSlots>::Update(const BudgetTask& budget_task)
    : task(budget_task),
      below(Simd::Set(static_cast<float>(task.first_candidate - 1))),
      above(Simd::Set(static_cast<float>(task.last_candidate + 1))) {
  const Simd::F lanes = Simd::Load(kLaneNumbers);
  const Simd::F head_lanes = Simd::Set(static_cast<float>(kHeadLanes));
  low_head = Simd::Less(lanes, head_lanes);
  head_slots = Simd::Select(low_head, lanes, Simd::Sub(lanes, head_lanes));
}

template <int64_t kBlockSlots>
typename Update<kBlockSlots>::Slots Update<kBlockSlots>::SlotsAt(int64_t first) const {
  const Simd::F numbers = Simd::Add(head_slots, Simd::Set(static_cast<float>(first)));
  const bool is_near_end = first + kStateAheadBlocks * kBlockSlots >= task.num_held;
  return {first, first / kBlockSlots * task.block_bytes + first % kBlockSlots * 4,
          is_near_end ? 0 : kStateAheadBlocks * task.block_bytes, numbers,
          Simd::Less(numbers, Simd::Set(static_cast<float>(task.num_held)))};
}

// The factors of the 64 slots from `slot`, each in all lanes of its head.
template <int64_t kBlockSlots>
void Update<kBlockSlots>::SpreadFactors(int64_t slot) {
  const float* of_block = task.factors + slot / kAttentionKeys * kDecodeQueries;
  float* to = factors;
  for (int64_t head = 0; head < task.num_heads; head += kHeads) {
    for (int64_t query = 0; query < task.group; ++query, to += kLanes) {
      const float low = of_block[head * task.group + query];
      const float high = of_block[Last(head) * task.group + query];
      Simd::Store(to, Simd::Select(low_head, Simd::Set(low), Simd::Set(high)));
    }
  }
}

// Of the slots' tokens, those of the group's queries added up in their order.
template <int64_t kBlockSlots>
Simd::F Update<kBlockSlots>::Weights(int64_t head, const Slots& slots) const {
  const int64_t begin = slots.first / kAttentionKeys * kAttentionKeys;
  const float* low = task.weights + begin * task.num_heads * task.group +
                     head * task.group * kAttentionKeys + slots.first % kAttentionKeys;
  const int64_t to_high = (Last(head) - head) * task.group * kAttentionKeys;
  const float* factor = factors + head / kHeads * task.group * kLanes;
  Simd::F sum = Simd::Zero();
  for (int64_t query = 0; query < task.group; ++query) {
    const Simd::F weights = kHeads == 1 ? Simd::Load(low) : Simd::LoadHalves(low, low + to_high);
    sum = query == 0 ? Simd::Mul(weights, Simd::Load(factor))
                     : Simd::Fma(weights, Simd::Load(factor), sum);
    low += kAttentionKeys;
    factor += kLanes;
  }
  return sum;
}

template <int64_t kBlockSlots>
Simd::F Update<kBlockSlots>::AddWeights(int64_t head, const Slots& slots, float* scores) const {
  const Simd::F sum = Simd::Add(LoadState(head, scores), Weights(head, slots));
  StoreState(head, scores, sum);
  return sum;
}

template <int64_t kBlockSlots>
void Update<kBlockSlots>::MeetSlots(int64_t head, const Slots& slots) const {
  const int64_t offset = slots.offset + head * task.head_bytes;
  std::byte* scores = task.scores + offset;
  const std::byte* positions = task.positions + offset;
  Simd::F urgency = Simd::Zero();  // where scores do not matter
  if (task.weights != nullptr) {
    __builtin_prefetch(scores + slots.ahead, 1, 3);
    urgency = Urgency(AddWeights(head, slots, reinterpret_cast<float*>(scores)));
  }
  __builtin_prefetch(positions + slots.ahead, 0, 3);
  const auto* from = reinterpret_cast<const float*>(positions);
  const Simd::F position = Simd::FromInts(LoadState(head, from));
  const Simd::M may_go = Simd::Both(Simd::Less(below, position), Simd::Less(position, above));
  const Simd::M candidates = Simd::Both(slots.held, may_go);
  MeetCandidates(head, slots, IsWhole(head) ? candidates : Simd::Both(candidates, low_head),
                 urgency);
}

// The lanes' tokens that should go first of those seen: of the highest urgency, of equal ones that
// of the highest position, which is looked up only then.
template <int64_t kBlockSlots>
void Update<kBlockSlots>::MeetCandidates(int64_t head, const Slots& slots, Simd::M candidates,
                                         Simd::F urgency) const {
  float* victims = VictimsOf(head);
  const Simd::F highest = Simd::Load(UrgenciesOf(head));
  const Simd::M first = Simd::Both(candidates, Simd::Less(highest, urgency));
  const Simd::M equal = Simd::Both(candidates, Simd::Equal(highest, urgency));
  Simd::Store(UrgenciesOf(head), Simd::Select(first, urgency, highest));
  Simd::Store(victims, Simd::Select(first, slots.numbers, Simd::Load(victims)));
  for (uint32_t lanes = Simd::Bits(equal); lanes != 0; lanes &= lanes - 1) {
    const int64_t lane = __builtin_ctz(lanes);
    const int64_t slot = slots.first + lane % kHeadLanes;
    if (IsNewer(head + lane / kHeadLanes, slot, static_cast<int64_t>(victims[lane])))
      victims[lane] = static_cast<float>(slot);
  }
}

template <int64_t kBlockSlots>
int32_t Update<kBlockSlots>::PositionAt(int64_t head, int64_t slot) const {
  int32_t position = 0;
  const std::byte* of_block = task.positions + slot / kBlockSlots * task.block_bytes;
  const std::byte* at = of_block + head * task.head_bytes + slot % kBlockSlots * 4;
  __builtin_memcpy(&position, at, sizeof(position));
  return position;
}

template <int64_t kBlockSlots>
bool Update<kBlockSlots>::IsNewer(int64_t head, int64_t slot, int64_t than) const {
  return than < 0 || (slot >= 0 && PositionAt(head, slot) > PositionAt(head, than));
}

// Of all its lanes; -1 where no candidate was met.
template <int64_t kBlockSlots>
int64_t Update<kBlockSlots>::Victim(int64_t head) const {
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

template <int64_t kBlockSlots>
void Update<kBlockSlots>::Begin() const {
  for (int64_t head = 0; head < task.num_heads; head += kHeads) {
    Simd::Store(UrgenciesOf(head), Simd::Set(-kInfinity));
    Simd::Store(VictimsOf(head), Simd::Set(-1.0F));
  }
}

template <int64_t kBlockSlots>
void Update<kBlockSlots>::Meet(int64_t begin) {
  if (task.weights != nullptr) SpreadFactors(begin);
  const int64_t end = MinOf(begin + kAttentionKeys, task.num_held);
  for (int64_t slot = begin; slot < end; slot += kHeadLanes) {
    const Slots slots = SlotsAt(slot);
    for (int64_t head = 0; head < task.num_heads; head += kHeads) MeetSlots(head, slots);
  }
}

template <int64_t kBlockSlots>
void Update<kBlockSlots>::FindVictims() const {
  for (int64_t head = 0; head < task.num_heads; ++head) task.victims[head] = Victim(head);
}

template <int64_t kBlockSlots>
void UpdateBudgetAs(const BudgetTask& task, int64_t begin) {
  Update<kBlockSlots> update(task);
  if (begin == 0) update.Begin();
  update.Meet(begin);
  if (begin + kAttentionKeys >= task.num_held) update.FindVictims();
}

inline void UpdateBudgetSimd(const BudgetTask& task, int64_t begin) {
  if (task.block_slots == kKvBlockSlots) return UpdateBudgetAs<kKvBlockSlots>(task, begin);
  UpdateBudgetAs<kKvCodedBlockSlots>(task, begin);
}

}  // namespace
}  // namespace spillway::kernels
