// The verb `score --perplexity`: how well the model predicts one text. Thread rule: the main
// thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Prints "perplexity 12.34 (5678 tokens)" on standard output. Returns 0.
// Throws: Error kFlag: a window over the model's positions; kInput: a text that is unusable or too
// short; kNonFinite: logits of a window are not finite; and what runs throw.
int RunPerplexity(const Config& config);

}  // namespace spillway
