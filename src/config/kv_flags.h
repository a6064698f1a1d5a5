// The flags of the KV cache, and the KV policy that they and a policy file come to.
// Plain functions; any thread.
#pragma once

#include <vector>

#include "src/config/config.h"
#include "src/config/flags.h"
#include "src/config/sources.h"

namespace spillway {

std::vector<Flag> KvFlags();
Flag KvBudgetsFlag();
Flag CalibrationFlag();

// Sets config.kv: what the policy file says, and over it what flags say, amount by amount.
// Throws: Error kFlag: amounts that the policy has no use for, or that contradict each other.
void ResolveKv(Config& config);

// Throws: Error kFlag: --max-loss without --calibration, or a KV policy or bits beside it.
void CheckCalibration(const Config& config, const Stated& stated);

// Throws: Error kFlag: a budget of --kv-budgets that the KV policy cannot keep.
void CheckKvBudgets(const Config& config);

}  // namespace spillway
