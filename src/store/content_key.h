// Content key: what a store was made from, in 16 digits. A store whose key differs is of another
// model, whatever its name. Pure functions of what is on disk; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "spillway/model.h"

namespace spillway {

// Hashes names, sizes and times of change of a checkpoint folder's files, its config.json and the
// shape that it is held in memory as. Reads no weights.
// Throws: Error kModelMissing, kSystemLimit, kIo.
std::string CheckpointContentKey(const std::filesystem::path& folder, const ModelShape& shape);

// Key of seeded random weights.
std::string DummyContentKey(const ModelShape& shape, uint64_t seed);

}  // namespace spillway
