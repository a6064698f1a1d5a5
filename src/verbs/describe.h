// A checkpoint folder in short, for `spillway inspect`. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"

namespace spillway {

// Several lines: format, tensors, bytes by element type, the model's shape, whether the two agree,
// first tensors. A folder whose config.json is missing or not supported is described without the
// shape, and the reason is shown. Throws: what OpenCheckpoint throws.
std::string DescribeCheckpoint(const std::filesystem::path& folder);

// The same of a GGUF file. Throws: what OpenGgufModel throws.
std::string DescribeGguf(const std::filesystem::path& path);

// The same of a file of weights by itself, without the shape; nullopt: its name is not that of one.
// Throws: what OpenCheckpoint throws.
std::optional<std::string> DescribeWeightsFile(const std::filesystem::path& path);

// Describes a checkpoint whose shape is known, in the same lines. Throws: nothing.
std::string DescribeModel(const Checkpoint& checkpoint, const ModelShape& shape);

}  // namespace spillway
