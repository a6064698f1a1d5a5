// `generate --stream` and `score --stream`: a worker that answers lines as they come; the model
// stays in memory between batches. Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Returns the exit status. Throws: Error.
int AnswerStreamed(const Config& config);

}  // namespace spillway
