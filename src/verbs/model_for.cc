#include "src/verbs/model_for.h"

namespace spillway {
namespace {

ModelUse UseOf(Verb verb) {
  if (PlansOnly(verb)) return ModelUse::kPlan;
  return verb == Verb::kConvert ? ModelUse::kConvert : ModelUse::kRun;
}

}  // namespace

OpenedModel ModelFor(const Config& config) {
  ModelChoice choice;
  choice.model = config.model;
  choice.tokenizer = config.tokenizer;
  choice.dummy_weights = config.dummy_weights;
  choice.weight_bits = config.weight_bits;
  if (config.allow_nonfinite_weights) choice.nonfinite = NonFiniteWeights::kAllow;
  choice.seed = config.seed;
  choice.use = UseOf(config.verb);
  return OpenModel(choice);
}

}  // namespace spillway
