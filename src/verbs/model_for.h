// ModelFor: from --model and its neighbours to a model that is opened. Thread rule: the main
// thread.
#pragma once

#include "src/config/config.h"
#include "src/store/open_model.h"

namespace spillway {

// Throws: what OpenModel throws.
OpenedModel ModelFor(const Config& config);

}  // namespace spillway
