// The `inspect` verb's text. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

// A checkpoint folder or a store in short; reads no weights.
// Throws: what OpenCheckpoint and OpenStore throw.
std::string DescribeFolder(const std::filesystem::path& folder);

}  // namespace spillway
