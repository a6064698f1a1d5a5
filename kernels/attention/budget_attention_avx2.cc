#include "kernels/attention/budget_attention_simd.h"

namespace spillway::kernels {

void UpdateBudgetAvx2(const BudgetTask& task) { UpdateBudgetSimd(task); }

}  // namespace spillway::kernels
