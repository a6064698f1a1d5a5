// Output that is written as it is, in place: standard output, a pipe, a character device.
// Plain functions; any thread.
#pragma once

#include <filesystem>

#include "src/base/descriptor.h"

namespace spillway {

// "-" and "/dev/stdout".
bool IsStandardOutput(const std::filesystem::path& path);

// Not valid where `path` is, or will be, a regular file. Throws: Error kIo, kPath.
Descriptor OpenStream(const std::filesystem::path& path);

}  // namespace spillway
