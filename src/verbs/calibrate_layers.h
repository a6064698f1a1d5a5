// CalibrateLayers: how many tokens each layer may lose (calibrate --per layer).
// Thread rule: the main thread.
#pragma once

#include <memory>

#include "src/verbs/chain.h"

namespace spillway {

std::unique_ptr<Stages> CalibrateLayers(const Opened& opened);

}  // namespace spillway
