// The `generate` verb: the whole pipeline from a file of prompts to a file of completions.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns 0, or 21 when some lines carry errors.
// Throws: Error; finished lines are in the output's .part file when a run had begun.
int RunGenerate(const Config& config);

}  // namespace spillway
