#include "src/sampling/row_scorer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/sampling/log_probability.h"
#include "src/sampling/token_choice.h"

namespace spillway {

RowScorer::RowScorer(const Request& request) : request_(request) {
  SPILLWAY_CHECK(request.scored && !request.scored->told.empty());
  const std::size_t num_tokens = request.prompt.size() + request.scored->told.size();
  const auto num_scored = num_tokens - static_cast<std::size_t>(request.scored->first);
  logprobs_.resize(num_scored);
  is_best_.resize(num_scored);
  if (request.sampling.num_logprobs >= 0) steps_.resize(num_scored);
}

TokenId RowScorer::TokenAt(int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  const std::size_t num_prompt = request_.prompt.size();
  return at < num_prompt ? request_.prompt[at] : request_.scored->told[at - num_prompt];
}

void RowScorer::See(int64_t position, std::span<float> logits, ChoiceScratch& scratch) {
  const int64_t scored = position + 1 - request_.scored->first;
  if (scored < 0) return;
  const auto at = static_cast<std::size_t>(scored);
  const TokenId token = TokenAt(position + 1);
  const std::optional<TokenId> best = ArgMax(logits);
  is_best_[at] = best == token ? 1 : 0;
  logprobs_[at] = best ? LogProbability(logits, token, logits[static_cast<std::size_t>(*best)])
                       : std::numeric_limits<float>::quiet_NaN();
  if (!best || steps_.empty()) return;
  const double normaliser = LogSumExp(logits, logits[static_cast<std::size_t>(*best)]);
  steps_[at].top = Likeliest(logits, request_.sampling.num_logprobs, normaliser, scratch);
}

RowStatus RowScorer::EndPass() {
  SPILLWAY_CHECK(status_ == RowStatus::kRunning);
  ++num_told_;
  const auto num_known = static_cast<int64_t>(request_.prompt.size()) + num_told_;
  const int64_t num_scored = std::max<int64_t>(num_checked_, num_known - request_.scored->first);
  const bool finite = std::none_of(logprobs_.begin() + num_checked_, logprobs_.begin() + num_scored,
                                   [](float logprob) { return std::isnan(logprob); });
  num_checked_ = num_scored;
  const bool told_all = num_told_ == static_cast<int64_t>(request_.scored->told.size());
  status_ = !finite ? RowStatus::kNonFinite : told_all ? RowStatus::kLength : RowStatus::kRunning;
  return status_;
}

TokenId RowScorer::newest() const {
  return request_.scored->told[static_cast<std::size_t>(num_told_ - 1)];
}

Completion RowScorer::Take() {
  SPILLWAY_CHECK(status_ == RowStatus::kLength);
  Completion completion;
  completion.num_prompt_tokens = static_cast<int64_t>(request_.prompt.size());
  completion.scores.greedy_match =
      std::ranges::all_of(is_best_, [](uint8_t is_best) { return is_best != 0; });
  for (std::size_t at = 0; at < steps_.size(); ++at) steps_[at].chosen = logprobs_[at];
  completion.logprobs = std::move(steps_);
  completion.scores.logprobs = std::move(logprobs_);
  return completion;
}

}  // namespace spillway
