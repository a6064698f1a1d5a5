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

static_assert(kKvBlockSlots % kLanes == 0);

inline float* ScoresAt(const BudgetTask& task, int64_t slot) {
  return reinterpret_cast<float*>(task.scores + slot / kKvBlockSlots * task.block_bytes) +
         slot % kKvBlockSlots;
}

inline const int32_t* PositionsAt(const BudgetTask& task, int64_t slot) {
  return reinterpret_cast<const int32_t*>(task.positions +
                                          slot / kKvBlockSlots * task.block_bytes) +
         slot % kKvBlockSlots;
}

// How much each of kLanes slots should go: -score, the lowest for those that stay. A NaN score goes
// first, and no candidate is as low as a token that stays.
inline Simd::F Urgency(const BudgetTask& task, int64_t slot) {
  Simd::F urgency = Simd::Zero();
  if (task.weights != nullptr) {
    urgency = Simd::Sub(Simd::Zero(), Simd::Load(ScoresAt(task, slot)));
    urgency = Simd::Min(urgency, Simd::Set(kInfinity));  // the second operand for NaN
    urgency = Simd::Max(urgency, Simd::Set(-kLargest));
  }
  const Simd::F position = Simd::LoadInt(PositionsAt(task, slot));
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
  const int64_t n = MinOf(kLanes, task.num_held - slot);
  float* scores = ScoresAt(task, slot);
  const Simd::F sum = Simd::Add(Simd::LoadPart(scores, n), Simd::Load(task.weights + slot));
  Simd::StorePart(scores, sum, n);
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
    victims.Meet(Urgency(task, slot), Simd::LoadInt(PositionsAt(task, slot)),
                 Simd::Add(Simd::Load(kLaneNumbers), Simd::Set(static_cast<float>(slot))));
  }
  return victims.Slot();
}

}  // namespace
}  // namespace spillway::kernels
