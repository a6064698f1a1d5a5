// JSON from a model folder, which nobody vouches for: bounded size and depth.
// Pure functions; any thread.
#pragma once

#include <string_view>

#include "src/base/strict_json.h"
#include "src/checkpoint/model_file.h"

namespace spillway {

constexpr int kMaxJsonDepth = static_cast<int>(kMaxStrictJsonDepth);

// No key twice in an object. `source` is what messages call the text.
// Throws: Error kModelMalformed.
nlohmann::json ParseBoundedJson(std::string_view text, std::string_view source);

// Throws: Error kModelMalformed, kModelUnsupported (more than `max_bytes`), kIo, kCorrupt.
nlohmann::json ReadBoundedJson(const ModelFile& file, int64_t max_bytes);

// ReadBoundedJson by ParsePythonJson: for settings that transformers wrote or someone edited.
nlohmann::json ReadPythonJson(const ModelFile& file, int64_t max_bytes);

}  // namespace spillway
