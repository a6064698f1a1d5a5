// Texts to score as requests: which tokens go into the first pass, and which are told one by one.
// Plain functions of values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/sampling/request.h"

namespace spillway {

// How many tokens of a text its first pass takes. The others are told one a pass, as if the model
// had sampled them, so that a KV policy does to them what it does to generated tokens.
struct ScorePrefill {
  std::optional<int64_t> tokens;  // stated; otherwise all
  bool stops_at_context = false;  // where not stated: only what precedes the first scored token

  // Tokens of the prefill: at least one, and not the last, which nothing is predicted from.
  // Requires: 1 <= first < num_tokens.
  int64_t Of(int64_t first, int64_t num_tokens) const;
};

// The tokens of a text; those before `first` are its context.
struct KnownTokens {
  std::vector<TokenId> tokens;  // never empty
  int64_t first = 1;
  int64_t num_unscored = 0;  // ScoredText::num_unscored
  int64_t num_cut = 0;       // ScoredText::num_cut
};

// The text without the start of a context that is too long for the model: its last positions + 1
// tokens, the last of which is never fed, as lm-eval-harness keeps them.
// Requires: fewer than positions + 1 are scored.
KnownTokens WithCutContext(KnownTokens text, int64_t max_positions);

// A text without anything to score (told is empty then) is answered without the model.
// Requires: first >= 1. Sets neither line nor custom_id.
Request ScoreRequest(KnownTokens text, const ScorePrefill& prefill);

}  // namespace spillway
