// The log-probability of one token under a row of logits. Plain function; any thread.
#pragma once

#include <span>

#include "src/sampling/request.h"

namespace spillway {

// log softmax(logits)[token]: exp in fp32 (2 ulp), sums of 1,024 in fp32 and of those in double, in
// one fixed order; about 1e-6 off. -infinity where the token's logit is.
// Requires: no NaN; `largest` is the largest logit and finite.
float LogProbability(std::span<const float> logits, TokenId token, float largest);

}  // namespace spillway
