// config.json -> ModelShape.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "spillway/model.h"
#include "src/checkpoint/quantisation.h"

namespace spillway {

// Contents of a model's two files of settings, each read once.
struct ModelConfig {
  ModelShape shape;
  // The model_type of the whole, where only a part of such a model is read, its text's; else empty.
  std::string type_of_whole;
  nlohmann::json generation;  // generation_config.json; null: there is none
  std::optional<Quantisation> quantisation;  // by another program; nullopt: there is none
};

// Reads folder/config.json, and generation_config.json, whose eos the shape has, when it is there.
// Every number is range-checked; a wrong type, an impossible combination or an unsupported
// architecture names its key. Throws: Error kModelMissing, kModelMalformed, kModelUnsupported,
// kModelInconsistent.
ModelConfig ReadModelConfig(const std::filesystem::path& folder);

// The shape alone.
ModelShape ReadModelShape(const std::filesystem::path& folder);

}  // namespace spillway
