#include "kernels/budget_attention_simd.h"

namespace spillway::kernels {

void UpdateBudgetPortable(const BudgetTask& task, int64_t slot_begin) {
  UpdateBudgetSimd(task, slot_begin);
}

}  // namespace spillway::kernels
