// Sampling: how the next token is chosen and when a row ends. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway {

struct Sampling {
  double temperature = 0.0;             // 0: greedy
  double top_p = 1.0;                   // 1: off
  int64_t top_k = 0;                    // 0: off
  int64_t max_tokens = 64;              // of completion, at least 1
  int64_t min_tokens = 0;               // eos and stop strings are not obeyed before
  std::optional<uint64_t> seed;         // the line's own; otherwise (run seed, line number)
  std::vector<std::string> stop;        // at most 16, none empty
  std::vector<int32_t> stop_token_ids;  // end the row as eos does, also where that is ignored
  std::vector<std::string> choices;     // the answer is one of these; none: any text
  double repetition_penalty = 1.0;      // 1: off; of tokens of the prompt and so far
  bool ignore_eos = false;
  int64_t num_logprobs = -1;  // -1: none; N >= 0: the chosen token's and the N best of each step
};

}  // namespace spillway
