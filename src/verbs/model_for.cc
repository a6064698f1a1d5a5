#include "src/verbs/model_for.h"

#include <fmt/format.h>

#include "src/base/terminal.h"

namespace spillway {
namespace {

ModelUse UseOf(Verb verb) {
  if (PlansOnly(verb)) return ModelUse::kPlan;
  return verb == Verb::kConvert ? ModelUse::kConvert : ModelUse::kRun;
}

// Tells that only the text part of a model with images is read.
void TellOfOtherParts(const Config& config, const OpenedModel& model) {
  if (config.verbosity == Verbosity::kQuiet || model.weights.surplus.empty()) return;
  if (HasDummyWeights(model) || model.type_of_whole.empty()) return;
  PrintWarning(fmt::format("{}: text only; {} tensors of other parts are skipped",
                           model.type_of_whole, model.weights.surplus.size()));
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
  OpenedModel model = OpenModel(choice);
  TellOfOtherParts(config, model);
  return model;
}

}  // namespace spillway
