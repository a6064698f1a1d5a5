// The bookkeeping of BudgetAttention, compiled once per instruction set. Positions and slots are
// compared as floats, exact below 2^24.
#pragma once

#include <cstdint>

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

inline int32_t PositionAt(const BudgetTask& task, int64_t head, int64_t slot) {
  int32_t position = 0;
  const std::byte* at = task.positions + head * task.head_bytes + Slots::At(task, slot);
  __builtin_memcpy(&position, at, sizeof(position));
  return position;
}

// A KV head's tokens that should go first of those seen, one for each lane: of the highest urgency,
// of equal ones that of the highest position, which is looked up only then. A view of task.best.
struct Victims {
  const BudgetTask& task;
  int64_t head;
  float* urgencies;  // [kLanes]
  float* slots;      // [kLanes]; -1: none

  Victims(const BudgetTask& of, int64_t kv_head)
      : task(of),
        head(kv_head),
        urgencies(of.best + kv_head * kVictimFloats),
        slots(urgencies + kLanes) {}
  void Clear() const {
    Simd::Store(urgencies, Simd::Set(-kInfinity));
    Simd::Store(slots, Simd::Set(-1.0F));
  }
  int64_t SlotOf(int64_t lane) const { return static_cast<int64_t>(slots[lane]); }
  bool IsNewer(int64_t slot, int64_t than) const {
    return than < 0 || (slot >= 0 && PositionAt(task, head, slot) > PositionAt(task, head, than));
  }
  void Meet(const Slots& met, Simd::M candidates, Simd::F urgency) const {
    const Simd::F highest = Simd::Load(urgencies);
    const Simd::M first = Simd::Both(candidates, Simd::Less(highest, urgency));
    const Simd::M equal = Simd::Both(candidates, Simd::Equal(highest, urgency));
    Simd::Store(urgencies, Simd::Select(first, urgency, highest));
    Simd::Store(slots, Simd::Select(first, met.numbers, Simd::Load(slots)));
    for (uint32_t lanes = Simd::Bits(equal); lanes != 0; lanes &= lanes - 1) {
      const int64_t lane = __builtin_ctz(lanes);
      if (IsNewer(met.first + lane, SlotOf(lane)))
        slots[lane] = static_cast<float>(met.first + lane);
    }
  }
  // Of all lanes; -1 where no candidate was met.
  int64_t Slot() const;
};

inline int64_t Victims::Slot() const {
  const Simd::F urgency = Simd::Load(urgencies);
  uint32_t lanes = Simd::Bits(Simd::Equal(urgency, Simd::Set(Simd::MaxOf(urgency))));
  int64_t slot = SlotOf(__builtin_ctz(lanes));
  for (lanes &= lanes - 1; lanes != 0; lanes &= lanes - 1) {
    const int64_t other = SlotOf(__builtin_ctz(lanes));
    if (IsNewer(other, slot)) slot = other;
  }
  return slot;
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
  const Simd::M candidates = Simd::Both(slots.held, bounds.Hold(Simd::FromInts(positions.Load())));
  Victims(task, head).Meet(slots, candidates, Urgency(score));
}

// The lines that a head's state has and those of the heads before it do not.
template <int kToWrite>
inline void FetchLines(const std::byte* state, const Slots& slots, int64_t head) {
  for (const std::byte* at : {state + slots.low, state + slots.high}) {
    if (head == 0 || reinterpret_cast<uintptr_t>(at) % 64 == 0) __builtin_prefetch(at, kToWrite, 3);
  }
}

inline void FetchState(const BudgetTask& task, const Slots& slots, int64_t head) {
  const int64_t offset = head * task.head_bytes;
  if (task.weights != nullptr) FetchLines<1>(task.scores + offset, slots, head);
  FetchLines<0>(task.positions + offset, slots, head);
}

inline void UpdateBudgetSimd(const BudgetTask& task) {
  for (int64_t head = 0; head < task.num_heads; ++head) Victims(task, head).Clear();
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
    task.victims[head] = Victims(task, head).Slot();
}

}  // namespace
}  // namespace spillway::kernels
