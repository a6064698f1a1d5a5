// The `inspect` verb's text. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

// A checkpoint folder, a store, or a file of ours in short; reads no weights.
// Throws: what OpenCheckpoint, OpenStore and DescribeFile throw.
std::string DescribePath(const std::filesystem::path& path);

// A table of the built-in shapes: parameters, bytes of weights and of a token's KV in 16 bits, and
// how many layers have a window, which bounds theirs.
std::string DescribeShapes();

}  // namespace spillway
