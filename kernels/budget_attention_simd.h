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

// Scores or positions of kLanes slots from `slot`. Where the second half has no tokens, and perhaps
// no KV block, it is the first again.
struct StateAt {
  float* low;
  float* high;

  StateAt(const BudgetTask& task, std::byte* state, int64_t slot) {
    low = At(task, state, slot);
    high = slot + kHalf < task.num_held ? At(task, state, slot + kHalf) : low;
  }
  static float* At(const BudgetTask& task, std::byte* state, int64_t slot) {
    return reinterpret_cast<float*>(state + slot / task.block_slots * task.block_bytes) +
           slot % task.block_slots;
  }
  Simd::F Load() const { return Simd::LoadHalves(low, high); }
  // The first n.
  void Store(Simd::F v, int64_t n) const {
    Simd::StorePart(low, v, MinOf(n, kHalf));
    if (n > kHalf) Simd::StorePart(high, Simd::SwapHalves(v), n - kHalf);
  }
};

inline Simd::F Positions(const BudgetTask& task, int64_t slot) {
  return Simd::FromInts(StateAt(task, task.positions, slot).Load());
}

// How much each of kLanes slots should go: -score, the lowest for those that stay. A NaN score goes
// first, and no candidate is as low as a token that stays.
inline Simd::F Urgency(const BudgetTask& task, int64_t slot) {
  Simd::F urgency = Simd::Zero();
  if (task.weights != nullptr) {
    urgency = Simd::Sub(Simd::Zero(), StateAt(task, task.scores, slot).Load());
    urgency = Simd::Min(urgency, Simd::Set(kInfinity));  // the second operand for NaN
    urgency = Simd::Max(urgency, Simd::Set(-kLargest));
  }
  const Simd::F position = Positions(task, slot);
  const Simd::F index =
      Simd::Add(Simd::Load(kLaneNumbers), Simd::Set(static_cast<float>(slot - task.num_held)));
  const Simd::F first = Simd::Set(static_cast<float>(task.first_candidate));
  const Simd::F last = Simd::Set(static_cast<float>(task.last_candidate));
  const Simd::F stays = Simd::Set(-kInfinity);
  urgency = Simd::SelectLess(position, first, stays, urgency);
  urgency = Simd::SelectLess(last, position, stays, urgency);
  return Simd::SelectLess(index, Simd::Zero(), urgency, stays);
}

inline void AddWeights(const BudgetTask& task, int64_t slot) {
  const StateAt scores(task, task.scores, slot);
  const Simd::F sum = Simd::Add(scores.Load(), Simd::Load(task.weights + slot));
  scores.Store(sum, MinOf(kLanes, task.num_held - slot));
}

// Per lane the token that should go first of those seen: the highest urgency, of equal ones the
// highest position.
struct Victims {
  Simd::F urgency = Simd::Set(-kInfinity);
  Simd::F position = Simd::Set(-1.0F);
  Simd::F slot = Simd::Set(-1.0F);

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

inline int64_t UpdateBudgetSimd(const BudgetTask& task) {
  Victims victims;
  for (int64_t slot = 0; slot < task.num_held; slot += kLanes) {
    if (task.weights != nullptr) AddWeights(task, slot);
    victims.Meet(Urgency(task, slot), Positions(task, slot),
                 Simd::Add(Simd::Load(kLaneNumbers), Simd::Set(static_cast<float>(slot))));
  }
  return victims.Slot();
}

}  // namespace
}  // namespace spillway::kernels
