// QualityText: a quality receipt in words. Pure functions; any thread.
#pragma once

#include <string>

#include "spillway/quality.h"

namespace spillway {

// "the full cache's next token 97.1 % of the time (0.2), ...": steps along the same answers.
std::string StepsText(const QualityReceipt& receipt);

// "61.2 tokens in the mean, 61.5 with the full cache ...".
std::string LengthsText(const AnswerLengths& lengths);

// Warning for a run that loses as much as is mostly a mistake; empty for others.
std::string QualityWarning(const QualityReceipt& receipt);

}  // namespace spillway
