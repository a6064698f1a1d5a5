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

inline void AddWeightsSimd(const BudgetTask& task) {
  for (int64_t slot = 0; slot < task.num_held; slot += kLanes) {
    const int64_t n = MinOf(kLanes, task.num_held - slot);
    float* scores = ScoresAt(task, slot);
    const Simd::F sum = Simd::Add(Simd::LoadPart(scores, n), Simd::Load(task.weights + slot));
    Simd::StorePart(scores, sum, n);
  }
}

inline int64_t FindSlot(const BudgetTask& task, int32_t position) {
  int64_t found = -1;
  for (int64_t begin = 0; begin < task.num_held && found < 0; begin += kKvBlockSlots) {
    const int32_t* positions = PositionsAt(task, begin);
    const int64_t count = MinOf(kKvBlockSlots, task.num_held - begin);
    for (int64_t i = 0; i < count; ++i) found = positions[i] == position ? begin + i : found;
  }
  return found;
}

// The highest urgency, then the highest position that has it, then where that is.
inline int64_t FindVictimSimd(const BudgetTask& task) {
  Simd::F highest = Simd::Set(-kInfinity);
  for (int64_t slot = 0; slot < task.num_held; slot += kLanes)
    highest = Simd::Max(highest, Urgency(task, slot));
  const float urgency = Simd::MaxOf(highest);
  if (urgency < -kLargest) return -1;
  Simd::F position = Simd::Set(-1.0F);
  for (int64_t slot = 0; slot < task.num_held; slot += kLanes) {
    const Simd::F each = Simd::LoadInt(PositionsAt(task, slot));
    position = Simd::Max(position, Simd::SelectLess(Urgency(task, slot), Simd::Set(urgency),
                                                    Simd::Set(-1.0F), each));
  }
  return FindSlot(task, static_cast<int32_t>(Simd::MaxOf(position)));
}

}  // namespace
}  // namespace spillway::kernels
