// The verb `tokenize`: how many tokens each prompt of a file has, and which. Thread rule: the main
// thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Prompts are read as `generate` reads them, of any length. Returns 0, or 21 when some lines carry
// errors. Throws: Error: what opening a model throws; kInput, kOutputExists, kIo, kDiskSpace,
// kInterrupted.
int RunTokenize(const Config& config);

}  // namespace spillway
