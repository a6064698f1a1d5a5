// Request: one prompt with its sampling parameters, as a line of the input file stated it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/model.h"  // TokenId

namespace spillway {

struct Sampling {
  double temperature = 0.0;       // 0: greedy
  double top_p = 1.0;             // 1: off
  int64_t top_k = 0;              // 0: off
  int64_t max_tokens = 64;        // of completion, at least 1
  int64_t min_tokens = 0;         // eos and stop strings are not obeyed before
  std::optional<uint64_t> seed;   // the line's own; otherwise (run seed, line number)
  std::vector<std::string> stop;  // at most 16, none empty
  bool ignore_eos = false;
  int64_t num_logprobs = -1;  // -1: none; N >= 0: the chosen token's and the N best of each step
};

struct Request {
  int64_t line = 0;             // 1-based line of the input file
  std::string custom_id;        // the line's, or the line number
  std::vector<TokenId> prompt;  // never empty; start token included
  Sampling sampling;
};

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

struct Completion {
  std::string text;
  std::vector<TokenId> tokens;
  FinishReason finish_reason = FinishReason::kLength;
  int64_t num_prompt_tokens = 0;
  std::vector<StepLogprobs> logprobs;  // one a token, when asked for
};

}  // namespace spillway
