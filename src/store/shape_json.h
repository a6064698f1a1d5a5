// ModelShape <-> JSON, every field; for files that outlive the checkpoint they were made from.
// Pure functions; any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "spillway/model.h"

namespace spillway {

nlohmann::json ShapeToJson(const ModelShape& shape);

// Throws: Error kModelMalformed, kModelInconsistent (a field is missing, has the wrong type, is out
// of range or contradicts another), kModelUnsupported (family). `source` is what messages call it.
ModelShape ShapeFromJson(const nlohmann::json& document, const std::string& source);

}  // namespace spillway
