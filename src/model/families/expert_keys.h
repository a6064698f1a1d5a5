// Keys of config.json of models with experts. Plain functions; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "src/model/family.h"

namespace spillway {

// Keys of training, which change no answer.
std::vector<std::string_view> ExpertTrainingKeys();

// Number of experts, under `key` or else "num_local_experts", and of those that a token has. The
// rest of the shape is the caller's, whose numbers of layers and of a layer's experts are both
// bounded: together they are the model's experts.
// Throws: Error kModelInconsistent.
ExpertShape ReadExpertCounts(const JsonNode& config, std::string_view key, int64_t num_layers);

}  // namespace spillway
