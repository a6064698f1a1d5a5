// CalibrateHeads: how many tokens each KV head may lose, in one number of bits or in several
// (calibrate --per head, --pareto). Thread rule: the main thread.
#pragma once

#include <memory>

#include "src/verbs/chain.h"

namespace spillway {

std::unique_ptr<Stages> CalibrateHeads(const Opened& opened);

}  // namespace spillway
