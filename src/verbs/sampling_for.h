// SamplingFor: how rows are sampled that say nothing themselves: flags, then the model's
// generation_config.json, then the defaults. Thread rule: the main thread.
#pragma once

#include "src/config/config.h"
#include "src/store/open_model.h"

namespace spillway {

// The config with the model's own settings where no flag states another. A model that does not say
// "do_sample": true is greedy; its top_p and top_k then hold for rows that sample all the same.
// Throws: as ReadGenerationConfig; Error kFlag for a stop token that the model does not have.
Config WithModelSampling(Config config, const OpenedModel& model);

}  // namespace spillway
