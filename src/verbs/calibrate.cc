#include "src/verbs/calibrate.h"

#include "src/verbs/calibrate_heads.h"
#include "src/verbs/calibrate_layers.h"
#include "src/verbs/chain.h"

namespace spillway {

int RunCalibrate(const Config& config) {
  return RunChain(config,
                  config.budgets_per == BudgetsPer::kHead ? CalibrateHeads : CalibrateLayers);
}

}  // namespace spillway
