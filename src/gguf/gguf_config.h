// GgufConfig: what a GGUF file's metadata say about the model, as config.json and
// generation_config.json have it. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "src/gguf/gguf_file.h"

namespace spillway {

// The content of config.json, from a model's file or all parts of it. Throws: Error
// kModelMalformed, kModelUnsupported (architecture, or settings that change the result and are not
// read, by name), kIo, kCorrupt, kModelTruncated.
nlohmann::json GgufConfig(std::span<const GgufFile> files);

// The content of generation_config.json: the tokens that end an answer.
nlohmann::json GgufGeneration(const GgufMetadata& metadata);

}  // namespace spillway
