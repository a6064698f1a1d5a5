#include "kernels/attention/budget_attention_simd.h"

namespace spillway::kernels {

void UpdateBudgetPortable(const BudgetTask& task) { UpdateBudgetSimd(task); }

}  // namespace spillway::kernels
