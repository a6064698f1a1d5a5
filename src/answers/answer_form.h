// Forms of output lines, and what the scores in them add up to. Plain values; any thread.
#pragma once

#include <cstdint>

namespace spillway {

// OpenAI Batch lines of `generate`, or the lines of `score`.
enum class AnswerForm { kCompletion, kScore };

// Sums over scored tokens, natural log, in input order.
struct ScoreTotals {
  int64_t num_tokens = 0;
  double logprob_sum = 0.0;
};

}  // namespace spillway
