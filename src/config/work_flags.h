// The flags of what is read, how it is continued or scored, and where answers go.
// Plain functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "src/config/flags.h"

namespace spillway {

std::vector<Flag> InputFlags();
std::vector<Flag> SyntheticFlags();
std::vector<Flag> SamplingFlags();
// `help` names what is written.
std::vector<Flag> OutputFlags(std::string help);
// Taken and not used, so that a command line of `generate` is planned by changing its verb.
std::vector<Flag> UnusedOutputFlags();
// Of generate.
Flag ShadowFlag();
// Of calibrate and search.
Flag MaxLossFlag(std::string help);
// Of runs that a scheduler stops.
std::vector<Flag> StopFlags();
// Of a worker for other programs.
std::vector<Flag> StreamFlags();
std::vector<Flag> ScoreFlags();
std::vector<Flag> CalibrateFlags();

}  // namespace spillway
