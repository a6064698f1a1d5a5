#include "kernels/budget_attention_simd.h"

namespace spillway::kernels {

const BudgetFunctions kBudgetPortable = {AddWeightsSimd, FindVictimSimd};

}  // namespace spillway::kernels
