// A key of what a model's folder holds. Thread rule: plain function; any thread.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

// 16 hexadecimal digits of each file's name, its size and samples of its bytes (64 KiB in all): two
// models differ, a copy of one does not. Reads no more of a folder of any size.
// Throws: Error kModelMissing, kSystemLimit, kIo.
std::string SampledFolderKey(const std::filesystem::path& folder);

}  // namespace spillway
