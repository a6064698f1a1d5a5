#include "src/verbs/prediction_for.h"

#include "policies/cost/cost_model.h"
#include "src/simulate/simulate.h"

namespace spillway {

Overlap OverlapOf(const Config& config) { return config.overlap ? Overlap::kOn : Overlap::kOff; }

std::optional<Prediction> PredictionFor(const Config& config, const Plan& plan,
                                        const Workload& work) {
  if (!KnowsRates(plan.machine) || work.num_requests == 0) return std::nullopt;
  SimOptions options;
  options.overlap = OverlapOf(config);
  return Simulate(plan, work, options).prediction;
}

std::optional<Prediction> PredictionAfter(const Config& config, const Trace& trace,
                                          const Workload& work,
                                          const std::optional<Prediction>& expected, Plan& plan) {
  plan.machine.rates.store_bytes_per_s = trace.store_bytes_per_s;
  return trace.store_bytes_per_s > 0.0 ? PredictionFor(config, plan, work) : expected;
}

}  // namespace spillway
