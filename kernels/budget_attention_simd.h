// The bookkeeping of BudgetAttention, compiled once per instruction set. Positions are compared as
// floats, exact below 2^24.
#pragma once

#include "kernels/budget_attention_isa.h"
#include "kernels/simd.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kLanes = Simd::kLanes;
constexpr float kInfinity = __builtin_inff();
constexpr float kLargest = __FLT_MAX__;
constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

constexpr int64_t kHalf = kLanes / 2;  // slots of one KV block, whatever its length
static_assert(kKvBlockSlots % kHalf == 0 && kKvCodedBlockSlots % kHalf == 0);

// kLanes slots of a KV head's state.
struct Slots {
  int64_t first;
  int64_t count;  // that hold tokens
  // Bytes from the state of the head's first block to that of the first half and of the second,
  // which is the first again where it has no tokens, and perhaps no KV block.
  int64_t low;
  int64_t high;

  Slots(const BudgetTask& task, int64_t slot)
      : first(slot), count(MinOf(kLanes, task.num_held - slot)), low(At(task, slot)) {
    high = count > kHalf ? At(task, slot + kHalf) : low;
  }
  static int64_t At(const BudgetTask& task, int64_t slot) {
    return slot / task.block_slots * task.block_bytes + slot % task.block_slots * 4;
  }
};

// Their scores or positions.
struct StateAt {
  float* low;
  float* high;

  StateAt(std::byte* state, const Slots& slots)
      : low(reinterpret_cast<float*>(state + slots.low)),
        high(reinterpret_cast<float*>(state + slots.high)) {}
  Simd::F Load() const { return Simd::LoadHalves(low, high); }
  // The first n.
  void Store(Simd::F v, int64_t n) const {
    Simd::StorePart(low, v, MinOf(n, kHalf));
    if (n > kHalf) Simd::StorePart(high, Simd::SwapHalves(v), n - kHalf);
  }
};

// How much each of the slots should go: -score, the lowest for those that stay. A NaN score goes
// first, and no candidate is as low as a token that stays.
inline Simd::F Urgency(const BudgetTask& task, const Slots& slots, Simd::F score,
                       Simd::F position) {
  Simd::F urgency = Simd::Sub(Simd::Zero(), score);
  urgency = Simd::Min(urgency, Simd::Set(kInfinity));  // the second operand for NaN
  urgency = Simd::Max(urgency, Simd::Set(-kLargest));
  const Simd::F index =
      Simd::Add(Simd::Load(kLaneNumbers), Simd::Set(-static_cast<float>(slots.count)));
  const Simd::F first = Simd::Set(static_cast<float>(task.first_candidate));
  const Simd::F last = Simd::Set(static_cast<float>(task.last_candidate));
  const Simd::F stays = Simd::Set(-kInfinity);
  urgency = Simd::SelectLess(position, first, stays, urgency);
  urgency = Simd::SelectLess(last, position, stays, urgency);
  return Simd::SelectLess(index, Simd::Zero(), urgency, stays);
}

// With the weights added; zeros where scores do not matter.
inline Simd::F AddWeights(const BudgetTask& task, const Slots& slots, int64_t head) {
  if (task.weights == nullptr) return Simd::Zero();
  const StateAt scores(task.scores + head * task.head_bytes, slots);
  const float* weights = task.weights + head * task.weights_stride + slots.first;
  const Simd::F sum = Simd::Add(scores.Load(), Simd::Load(weights));
  scores.Store(sum, slots.count);
  return sum;
}

// Per lane the token that should go first of those seen: the highest urgency, of equal ones the
// highest position.
struct Victims {
  Simd::F urgency = Simd::Set(-kInfinity);
  Simd::F position = Simd::Set(-1.0F);
  Simd::F slot = Simd::Set(-1.0F);

  Victims() = default;
  explicit Victims(const float* from)
      : urgency(Simd::Load(from)),
        position(Simd::Load(from + kLanes)),
        slot(Simd::Load(from + 2 * kLanes)) {}
  void StoreTo(float* to) const {
    Simd::Store(to, urgency);
    Simd::Store(to + kLanes, position);
    Simd::Store(to + 2 * kLanes, slot);
  }
  void Meet(Simd::F other, Simd::F other_position, Simd::F other_slot) {
    const Simd::F tie_slot = Simd::SelectLess(position, other_position, other_slot, slot);
    const Simd::F tie_position = Simd::Max(other_position, position);
    slot = Choose(other, other_slot, slot, tie_slot);
    position = Choose(other, other_position, position, tie_position);
    urgency = Simd::Max(other, urgency);
  }
  // `more` where the other is more urgent, `less` where it is less, else `equal`.
  Simd::F Choose(Simd::F other, Simd::F more, Simd::F less, Simd::F equal) const {
    return Simd::SelectLess(urgency, other, more, Simd::SelectLess(other, urgency, less, equal));
  }
  int64_t Slot() const;
};

inline int64_t Victims::Slot() const {
  const float highest = Simd::MaxOf(urgency);
  if (highest < -kLargest) return -1;
  const Simd::F stays = Simd::Set(-1.0F);
  const Simd::F positions = Simd::SelectLess(urgency, Simd::Set(highest), stays, position);
  const Simd::F last = Simd::Set(Simd::MaxOf(positions));
  return static_cast<int64_t>(Simd::MaxOf(Simd::SelectLess(positions, last, stays, slot)));
}

inline void MeetSlots(const BudgetTask& task, const Slots& slots, int64_t head) {
  const Simd::F score = AddWeights(task, slots, head);
  const StateAt positions(task.positions + head * task.head_bytes, slots);
  const Simd::F position = Simd::FromInts(positions.Load());
  const Simd::F slot =
      Simd::Add(Simd::Load(kLaneNumbers), Simd::Set(static_cast<float>(slots.first)));
  float* best = task.best + head * kVictimFloats;
  Victims victims(best);
  victims.Meet(Urgency(task, slots, score, position), position, slot);
  victims.StoreTo(best);
}

// Fetched for each call of MeetSlots: about what memory gives in its time.
constexpr int64_t kNextStep = 256;

inline void UpdateBudgetSimd(const BudgetTask& task) {
  for (int64_t head = 0; head < task.num_heads; ++head)
    Victims().StoreTo(task.best + head * kVictimFloats);
  int64_t next = 0;
  for (int64_t slot = 0; slot < task.num_held; slot += kLanes) {
    const Slots slots(task, slot);
    for (int64_t head = 0; head < task.num_heads; ++head) {
      for (int64_t end = MinOf(next + kNextStep, task.next_bytes); next < end; next += 64)
        __builtin_prefetch(task.next + next, 0, 2);
      MeetSlots(task, slots, head);
    }
  }
  for (int64_t head = 0; head < task.num_heads; ++head)
    task.victims[head] = Victims(task.best + head * kVictimFloats).Slot();
}

}  // namespace
}  // namespace spillway::kernels
