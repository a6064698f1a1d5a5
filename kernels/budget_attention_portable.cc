#include "kernels/budget_attention_simd.h"

namespace spillway::kernels {

int64_t UpdateBudgetPortable(const BudgetTask& task) { return UpdateBudgetSimd(task); }

}  // namespace spillway::kernels
