// Request: one prompt with its sampling parameters, as a line of the input file stated it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spillway/kv_policy.h"  // KvLess
#include "spillway/model.h"      // TokenId
#include "spillway/sampling.h"
#include "spillway/workload.h"  // RequestShape

namespace spillway {

// A text that is scored: nothing is sampled. Its tokens are the request's prompt, which is fed in
// one pass, and those that the passes after it are told.
struct ScoredText {
  std::vector<TokenId> told;  // the last one is scored and never fed
  int64_t first = 1;         // of prompt + told: the first that is scored; what precedes is context
  int64_t num_unscored = 0;  // entries of the answer before it, all null
};

// Form of the answer: a text, or the message of an assistant.
enum class AnswerBody { kText, kMessage };

class ChoiceSet;

struct Request {
  int64_t line = 0;                          // 1-based line of the input file
  std::string custom_id;                     // the line's, or the line number
  std::vector<TokenId> prompt;               // never empty; start token included
  Sampling sampling;                         // of a scored text max_tokens only: how many are told
  std::shared_ptr<const ChoiceSet> choices;  // in place of the sampling's; null: any text
  std::optional<ScoredText> scored;
  KvLess kv_less;       // than the run's policy keeps
  int64_t num_cut = 0;  // tokens that were left out of the prompt; of a scored text, of its context
  AnswerBody body = AnswerBody::kText;
  bool opens_reasoning = false;  // the prompt ends with <think>

  // Tokens at the prompt's end whose logits are wanted: the last one, or all that precede a scored
  // token.
  int64_t NumPromptLogits() const {
    const auto num_tokens = static_cast<int64_t>(prompt.size());
    return scored ? std::max<int64_t>(1, num_tokens - scored->first + 1) : 1;
  }
  // The tokens before those.
  std::span<const TokenId> BeforeLogits() const {
    return std::span(prompt).first(prompt.size() - static_cast<std::size_t>(NumPromptLogits()));
  }
  // Tokens whose logits are wanted, prompt and later passes together.
  int64_t NumLogits() const { return NumPromptLogits() + sampling.max_tokens - 1; }
};

// The shape with all of the prompt's tokens.
inline RequestShape ShapeOf(const Request& request) {
  return {static_cast<int64_t>(request.prompt.size()), request.sampling.max_tokens,
          request.NumPromptLogits()};
}

// A line that cannot be run. Printed as the output line's "error".
struct LineError {
  int64_t line = 0;
  std::string custom_id;  // empty when the line did not get that far
  std::string code;       // stable, e.g. "invalid_json", "unknown_key", "context_length_exceeded"
  std::string message;    // "line 3: ..."
};

enum class FinishReason { kStop, kLength };

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;  // natural log
};

struct StepLogprobs {
  float chosen = 0.0F;
  std::vector<TokenLogprob> top;  // descending
};

// The choice that an answer is.
struct TakenChoice {
  int64_t index = 0;     // in the request's choices
  double logprob = 0.0;  // of its tokens under the model, natural log; where another choice goes
                         // on, of not going on so too
};

// Scores of a text, natural logs.
struct Scores {
  std::vector<float> logprobs;  // one a scored token; -infinity where it has no probability at all
  bool greedy_match = true;     // each of them is the likeliest, the lowest id among equals
};

struct Completion {
  std::string text;
  std::vector<TokenId> tokens;
  FinishReason finish_reason = FinishReason::kLength;
  int64_t num_prompt_tokens = 0;
  std::vector<StepLogprobs> logprobs;  // one a token, when asked for
  std::optional<TakenChoice> choice;   // of a request that has some
  Scores scores;  // of a request that is scored; all but the logprobs is empty then
};

}  // namespace spillway
