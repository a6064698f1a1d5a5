// Flags of conversations: which template, which system message, which form of the answer.
// Plain functions; any thread.
#pragma once

#include <vector>

#include "src/config/flags.h"

namespace spillway {

// Flags of every verb that reads conversations, and those of the one that answers them.
std::vector<Flag> ChatFlags();
std::vector<Flag> ChatAnswerFlags();

}  // namespace spillway
