// The bookkeeping of BudgetAttention, compiled once per instruction set. Positions are compared as
// floats, exact below 2^24.
#pragma once

#include "kernels/budget_attention_isa.h"
#include "kernels/next_read_simd.h"
#include "kernels/simd.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kLanes = Simd::kLanes;
constexpr float kInfinity = __builtin_inff();
constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

constexpr int64_t kHalf = kLanes / 2;  // slots of one KV block, whatever its length
static_assert(kKvBlockSlots % kHalf == 0 && kKvCodedBlockSlots % kHalf == 0);

// kLanes slots of each KV head's state.
struct Slots {
  int64_t first;
  int64_t count;  // that hold tokens
  Simd::M held;   // those
  Simd::F numbers;
  // Bytes from the state of the head's first block to that of the first half and of the second,
  // which is the first again where it has no tokens, and perhaps no KV block.
  int64_t low;
  int64_t high;

  Slots(const BudgetTask& task, int64_t slot)
      : first(slot),
        count(MinOf(kLanes, task.num_held - slot)),
        held(Simd::Mask(count)),
        numbers(Simd::Add(Simd::Load(kLaneNumbers), Simd::Set(static_cast<float>(slot)))),
        low(At(task, slot)) {
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
  void Store(Simd::F v, int64_t count) const {
    if (count == kLanes) return Simd::StoreHalves(low, high, v);
    Simd::StorePart(low, v, MinOf(count, kHalf));
    if (count > kHalf) Simd::StorePart(high, Simd::SwapHalves(v), count - kHalf);
  }
};

// How much a token of this score should go: -score. One of no score at all goes first.
inline Simd::F Urgency(Simd::F score) {
  return Simd::Min(Simd::Sub(Simd::Zero(), score), Simd::Set(kInfinity));  // the second for NaN
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
// highest position, which no token has below 0.
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
  void Meet(Simd::M candidates, Simd::F other, Simd::F other_position, Simd::F other_slot) {
    const Simd::M newer =
        Simd::Both(Simd::Equal(urgency, other), Simd::Less(position, other_position));
    const Simd::M first = Simd::Both(candidates, Simd::Either(Simd::Less(urgency, other), newer));
    urgency = Simd::Select(first, other, urgency);
    position = Simd::Select(first, other_position, position);
    slot = Simd::Select(first, other_slot, slot);
  }
  int64_t Slot() const;
};

// -1 where none was met.
inline int64_t Victims::Slot() const {
  const Simd::F none = Simd::Set(-1.0F);
  const Simd::F highest = Simd::Set(Simd::MaxOf(urgency));
  const Simd::F positions = Simd::Select(Simd::Equal(urgency, highest), position, none);
  const Simd::F last = Simd::Set(Simd::MaxOf(positions));
  return static_cast<int64_t>(Simd::MaxOf(Simd::Select(Simd::Equal(positions, last), slot, none)));
}

// Positions that may go lie between these two.
struct Bounds {
  Simd::F below;
  Simd::F above;

  explicit Bounds(const BudgetTask& task)
      : below(Simd::Set(static_cast<float>(task.first_candidate - 1))),
        above(Simd::Set(static_cast<float>(task.last_candidate + 1))) {}
  Simd::M Hold(Simd::F position) const {
    return Simd::Both(Simd::Less(below, position), Simd::Less(position, above));
  }
};

inline void MeetSlots(const BudgetTask& task, const Bounds& bounds, const Slots& slots,
                      int64_t head) {
  const Simd::F score = AddWeights(task, slots, head);
  const StateAt positions(task.positions + head * task.head_bytes, slots);
  const Simd::F position = Simd::FromInts(positions.Load());
  const Simd::M candidates = Simd::Both(slots.held, bounds.Hold(position));
  float* best = task.best + head * kVictimFloats;
  Victims victims(best);
  victims.Meet(candidates, Urgency(score), position, slots.numbers);
  victims.StoreTo(best);
}

// The lines of both halves: scores and positions lie side by side in each.
inline void FetchState(const BudgetTask& task, const Slots& slots, int64_t head) {
  const std::byte* state = task.scores + head * task.head_bytes;
  __builtin_prefetch(state + slots.low, 1, 3);
  __builtin_prefetch(state + slots.high, 1, 3);
}

inline void UpdateBudgetSimd(const BudgetTask& task) {
  for (int64_t head = 0; head < task.num_heads; ++head)
    Victims().StoreTo(task.best + head * kVictimFloats);
  const Bounds bounds(task);
  int64_t next = 0;
  for (int64_t slot = 0; slot < task.num_held; slot += kLanes) {
    const Slots slots(task, slot);
    const Slots following(task, MinOf(slot + kLanes, task.num_held - 1));
    for (int64_t head = 0; head < task.num_heads; ++head) {
      next = FetchNext(task.next, next);
      FetchState(task, following, head);
      MeetSlots(task, bounds, slots, head);
    }
  }
  for (int64_t head = 0; head < task.num_heads; ++head)
    task.victims[head] = Victims(task.best + head * kVictimFloats).Slot();
}

}  // namespace
}  // namespace spillway::kernels
