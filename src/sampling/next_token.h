// NextToken: what a row does with its logits: it chooses its next token from them, or is told it
// and scores it. Thread rule: as each call says; different rows on any threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "src/sampling/request.h"
#include "src/sampling/token_choice.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

enum class RowStatus { kRunning, kStopped, kLength, kNonFinite };

class NextToken {
 public:
  virtual ~NextToken() = default;

  // The logits after the row's token at `position` (from 0, prompt included): [vocab], fp32, may be
  // changed in place. Allocates nothing for a greedy or a scored row. `scratch`: the calling
  // thread's. Requires: status() is kRunning; each wanted position of a pass once, in any order.
  // Thread rule: different positions on any threads.
  virtual void See(int64_t position, std::span<float> logits, ChoiceScratch& scratch) = 0;

  // All wanted positions of the pass have been seen. Thread rule: one thread, as all that follows.
  virtual RowStatus EndPass() = 0;

  virtual RowStatus status() const = 0;

  // The token that the next pass is fed. Requires: a pass has ended, status() is kRunning.
  virtual TokenId newest() const = 0;

  // The finished answer; leaves nothing behind. Requires: status() is kStopped or kLength.
  virtual Completion Take() = 0;
};

// A RowScorer for a request that is scored, a RowSampler for any other.
// Lifetime: request, tokenizer and eos outlive it.
std::unique_ptr<NextToken> MakeNextToken(const Request& request, const Tokenizer& tokenizer,
                                         std::span<const TokenId> eos, uint64_t run_seed);

}  // namespace spillway
