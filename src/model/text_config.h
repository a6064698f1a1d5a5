// Models with parts beside the one that reads and writes text: config.json has that part's keys in
// "text_config". Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/json_node.h"

namespace spillway {

// The text part's config.json: its own keys, those that its family has where there are none, and
// what the whole model's config.json says of types and tokens. Nullopt where model_type is none of
// a model with other parts. Throws: Error kModelInconsistent, kModelUnsupported.
std::optional<nlohmann::json> TextConfigOf(const JsonNode& config);

// True of the types of models that have other parts.
bool HasOtherParts(std::string_view model_type);

}  // namespace spillway
