#include "src/verbs/sampling_for.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "spillway/error.h"
#include "src/checkpoint/generation_config.h"

namespace spillway {
namespace {

constexpr int64_t kImpliedTopK = 50;  // transformers', where a model samples and does not say

void RefuseStopTokens(const Config& config, const OpenedModel& model) {
  for (const int32_t id : config.sampling.stop_token_ids) {
    if (id < model.shape.vocab_size) continue;
    throw Error(ErrorCode::kFlag, fmt::format("--stop-token-ids {}: the model's ids are 0 to {}",
                                              id, model.shape.vocab_size - 1));
  }
}

// Takes settings one by one, each unless a flag states it, and notes which were taken.
class Taker {
 public:
  explicit Taker(Config& config) : config_(config) {}

  template <typename T>
  void Take(const char* key, const char* flag, const std::optional<T>& found, T Sampling::*member) {
    if (!found || config_.stated.contains(flag) || config_.sampling.*member == *found) return;
    config_.sampling.*member = *found;
    config_.from_generation_config.emplace_back(key);
  }

 private:
  Config& config_;
};

// A limit or a stop of the model's own must not make a run impossible that the flags allow.
void TakeEnds(const GenerationConfig& model, Taker& taker, Config& config) {
  taker.Take("max_new_tokens", "max-new-tokens", model.max_new_tokens, &Sampling::max_tokens);
  std::optional<int64_t> least = model.min_new_tokens;
  if (least) least = std::min(*least, config.sampling.max_tokens);
  taker.Take("min_new_tokens", "min-new-tokens", least, &Sampling::min_tokens);
  if (model.stop_strings.empty() || config.stated.contains("stop")) return;
  config.sampling.stop = model.stop_strings;
  config.from_generation_config.emplace_back("stop_strings");
}

}  // namespace

Config WithModelSampling(Config config, const OpenedModel& model) {
  RefuseStopTokens(config, model);
  const bool samples = config.verb != Verb::kScore && !config.input.empty();
  if (!samples || config.ignore_generation_config) return config;
  const GenerationConfig own = ReadGenerationConfig(model.generation);
  Taker taker(config);
  if (own.do_sample)
    taker.Take("temperature", "temperature", std::optional(own.temperature.value_or(1.0)),
               &Sampling::temperature);
  // A mass of nothing leaves the likeliest token, as the smallest one does.
  std::optional<double> top_p = own.top_p;
  if (top_p) top_p = std::max(*top_p, 1e-9);
  taker.Take("top_p", "top-p", top_p, &Sampling::top_p);
  std::optional<int64_t> top_k = own.top_k;
  if (!top_k && own.do_sample) top_k = kImpliedTopK;
  taker.Take("top_k", "top-k", top_k, &Sampling::top_k);
  taker.Take("repetition_penalty", "repetition-penalty", own.repetition_penalty,
             &Sampling::repetition_penalty);
  TakeEnds(own, taker, config);
  return config;
}

}  // namespace spillway
