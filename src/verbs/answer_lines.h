// The verbs `generate` and `score --input`: the whole pipeline from a file of prompts to a file of
// completions, or of texts to a file of scores.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns 0, or 21 when some lines carry errors.
// Throws: Error; finished lines are in the output's .part file when a run had begun.
int AnswerLines(const Config& config);

}  // namespace spillway
