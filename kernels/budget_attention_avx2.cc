#include "kernels/budget_attention_simd.h"

namespace spillway::kernels {

const BudgetFunctions kBudgetAvx2 = {AddWeightsSimd, FindVictimSimd};

}  // namespace spillway::kernels
