// config.json -> ModelShape.
#pragma once

#include <filesystem>

#include "spillway/model.h"

namespace spillway {

// Reads folder/config.json (and generation_config.json's eos when it is there). Every number is
// range-checked; a wrong type, an impossible combination or an unsupported architecture names its
// key. Throws: Error kModelMissing, kModelMalformed, kModelUnsupported, kModelInconsistent.
ModelShape ReadModelShape(const std::filesystem::path& folder);

}  // namespace spillway
