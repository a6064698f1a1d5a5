// The flags of a model, a machine and how a run goes. Plain functions; any thread.
#pragma once

#include <vector>

#include "src/config/flags.h"

namespace spillway {

std::vector<Flag> ModelFlags();
std::vector<Flag> TokenizerFlags();
std::vector<Flag> RunFlags();
std::vector<Flag> ConvertFlags();
std::vector<Flag> ProfileFlags();
std::vector<Flag> TerminalFlags();

}  // namespace spillway
