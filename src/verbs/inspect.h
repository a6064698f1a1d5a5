// The `inspect` verb's text. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

// A checkpoint folder, a store, or a file of ours in short; reads no weights.
// Throws: what OpenCheckpoint, OpenStore and DescribeFile throw.
std::string DescribePath(const std::filesystem::path& path);

}  // namespace spillway
