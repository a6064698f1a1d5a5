// Bytes that a batch's rows, or one layer's weights, move over each link: those that the Plan
// placed. Pure functions of values; any thread.
#pragma once

#include <cstdint>

#include "policies/cost/batch_load.h"
#include "spillway/plan.h"

namespace spillway {

PerLink<int64_t> WeightBytes(const Plan& plan, int64_t layer);  // to the device, for one pass
PerLink<int64_t> FirstWeightBytes(const Plan& plan);  // the embedding's, when no head was before it
PerLink<int64_t> KvInBytes(const Plan& plan, const PerTier<KvLoad>& kv);
// Bytes of the KV, and of what a pass reads of the rows' log (KvLogPlan).
PerLink<int64_t> KvInBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv);
PerLink<int64_t> KvOutBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv);
PerLink<int64_t> HiddenInBytes(const Plan& plan, const BatchLoad& load);
PerLink<int64_t> HiddenOutBytes(const Plan& plan, const BatchLoad& load);

}  // namespace spillway
