// Files that come with the program. Thread rule: pure function of the file system; any thread.
#pragma once

#include <filesystem>
#include <optional>

namespace spillway {

// `installed` seen from the folder above the running program's own: share/spillway/... of the
// prefix that it is installed in. Need not exist.
std::filesystem::path InstalledPath(const std::filesystem::path& installed);

// InstalledPath(), or `source` in the tree that the program was built from; nullopt: neither
// exists.
std::optional<std::filesystem::path> ShippedPath(const std::filesystem::path& installed,
                                                 const std::filesystem::path& source);

}  // namespace spillway
