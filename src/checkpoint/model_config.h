// config.json -> ModelShape.
#pragma once

#include <filesystem>
#include <string>

#include "spillway/model.h"

namespace spillway {

// Reads folder/config.json (and generation_config.json's eos when it is there). Every number is
// range-checked; a wrong type, an impossible combination or an unsupported architecture names its
// key. Throws: Error kModelMissing, kModelMalformed, kModelUnsupported, kModelInconsistent.
ModelShape ReadModelShape(const std::filesystem::path& folder);

// The model_type in folder/config.json where only a part of such a model is read, its text's; else
// empty. Throws: as ReadModelShape.
std::string TypeOfWhole(const std::filesystem::path& folder);

}  // namespace spillway
