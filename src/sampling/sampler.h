// RowSampler: logits of one row -> the next token; the same token for every batch, order and
// resumption.
// Thread rule: belongs to its row; different rows on any threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/sampling/choice_set.h"
#include "src/sampling/next_token.h"
#include "src/sampling/random.h"  // UniformDraw
#include "src/sampling/request.h"
#include "src/sampling/token_choice.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// Everything one row carries from step to step: chosen tokens, stop-string search,
// log-probabilities.
class RowSampler final : public NextToken {
 public:
  // Requires: request, tokenizer and eos outlive the sampler.
  RowSampler(const Request& request, const Tokenizer& tokenizer, std::span<const TokenId> eos,
             uint64_t run_seed);

  // Chooses the next token from logits [vocab] (fp32; changed in place) and updates the row.
  // Order: repetition penalty (greedy too), eos and stop tokens masked below min_tokens (greedy
  // too), what leads to no choice of the request masked, temperature, top-k, top-p, draw. Greedy
  // takes the lowest id among equals.
  // Logprobs are of the model's own distribution: log-softmax of the logits as given, before
  // temperature and filters.
  // kNonFinite, and no token: a NaN or +inf among the logits, or nothing left over -inf.
  // The draw is number tokens().size() of the stream (request's seed, 0), or (run seed, line) when
  // it states none.
  // Requires: status() is kRunning.
  RowStatus Step(std::span<float> logits, ChoiceScratch& scratch);

  // A pass has one step, of the row's last token.
  void See(int64_t, std::span<float> logits, ChoiceScratch& scratch) override {
    Step(logits, scratch);
  }
  RowStatus EndPass() override { return status_; }

  RowStatus status() const override { return status_; }
  TokenId newest() const override { return completion_.tokens.back(); }
  const std::vector<TokenId>& tokens() const { return completion_.tokens; }

  // The finished completion; leaves the sampler empty. Bytes that are no UTF-8, such as the half of
  // a character at max_tokens, are U+FFFD in its text, which goes on from the prompt: a first token
  // keeps its leading space unless the prompt has no text at all.
  // Requires: status() is kStopped or kLength.
  Completion Take() override;

 private:
  // The next token; nullopt when the logits are not finite. Appends to the log-probabilities.
  std::optional<TokenId> Choose(std::span<float> logits, ChoiceScratch& scratch);
  bool MaskEnds(std::span<float> logits) const;
  // Requires, as of the functions after it: there are choices.
  AnswerSoFar SoFar() const { return {completion_.tokens, bytes_}; }
  // Whether the answer so far is one of the choices, and so may end by a token.
  bool MayEndChoice() const;
  void SetEndOfChoice(double normaliser, std::span<const TokenId> next,
                      std::span<float> logits) const;
  void KeepChoices(std::span<float> logits, ChoiceScratch& scratch) const;
  void PenaliseRepetition(std::span<float> logits);
  void MarkSeen(TokenId token);
  void KeepBest(std::span<const float> logits, double normaliser, ChoiceScratch& scratch);
  bool IsEos(TokenId token) const;
  // Whether the token ends the row: eos, unless that is ignored, or a stop token.
  bool EndsRow(TokenId token) const;
  // Whether what ends a row may end it with the next token: min_tokens come before.
  bool MayStop() const;
  RowStatus Append(TokenId token);

  const Request& request_;
  const Tokenizer& tokenizer_;
  std::span<const TokenId> eos_;
  uint64_t seed_;
  uint64_t stream_;
  bool opens_text_;           // no token so far has a text, the prompt's neither
  std::vector<bool> seen_;    // [vocab], with a repetition penalty: tokens of the prompt and so far
  std::string bytes_;         // the text of the tokens so far
  double logprob_sum_ = 0.0;  // of the tokens so far, where they are told or there are choices
  RowStatus status_ = RowStatus::kRunning;
  Completion completion_;
};

}  // namespace spillway
