// RowScorer: a row whose tokens are known. Each scored token gets its log-probability; the same
// bits for every batch, chunk, order and number of threads.
// Thread rule: as NextToken says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/sampling/next_token.h"
#include "src/sampling/request.h"

namespace spillway {

class RowScorer final : public NextToken {
 public:
  // Requires: request.scored tells at least one token. Lifetime: the request outlives the scorer.
  explicit RowScorer(const Request& request);

  // Keeps nothing of a token that precedes no scored one.
  void See(int64_t position, std::span<float> logits, ChoiceScratch& scratch) override;
  RowStatus EndPass() override;
  RowStatus status() const override { return status_; }
  TokenId newest() const override;
  Completion Take() override;

 private:
  TokenId TokenAt(int64_t index) const;  // of prompt + told

  const Request& request_;
  int64_t num_told_ = 0;
  int64_t num_checked_ = 0;          // scores of passes that have ended
  std::vector<float> logprobs_;      // [scored token]; NaN where the logits were not finite
  std::vector<uint8_t> is_best_;     // [scored token]: bytes, so that threads never share one
  std::vector<StepLogprobs> steps_;  // [scored token], where the request asks for the likeliest
  RowStatus status_ = RowStatus::kRunning;
};

}  // namespace spillway
