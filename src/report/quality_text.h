// QualityText: a quality receipt in words. Pure functions; any thread.
#pragma once

#include <string>

#include "spillway/kv_policy.h"
#include "spillway/quality.h"

namespace spillway {

// "the full cache's next token 97.1 % of the time (0.2), ...": steps along the same answers.
std::string StepsText(const QualityReceipt& receipt);

// "61.2 tokens in the mean, 61.5 with the full cache ...".
std::string LengthsText(const AnswerLengths& lengths);

// Warning for a run that loses as much as is mostly a mistake, with what the run's KV leaves to be
// changed; empty for others.
std::string QualityWarning(const QualityReceipt& receipt, const KvPolicy& kv, KvBits bits);

}  // namespace spillway
