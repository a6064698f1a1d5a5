// Advice: what bounds a planned run, and which change would help it most, in words. Each change is
// planned for and predicted as the run itself is. Plain function; the main thread.
#pragma once

#include <optional>
#include <string>

#include "spillway/prediction.h"
#include "src/verbs/chain.h"  // Setting, PlannedRun

namespace spillway {

// A line. Empty where there is nothing to say: for a run of less than a minute, and, where the
// machine's rates are not known, unless more memory would spare many reads of the weights on disk.
std::string AdviceText(const Setting& setting, const PlannedRun& planned,
                       const std::optional<Prediction>& predicted);

}  // namespace spillway
