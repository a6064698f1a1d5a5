// Folders of the user's own, where no flag names one. Thread rule: any thread.
#pragma once

#include <filesystem>

namespace spillway {

// Folder for what may be made again: $XDG_CACHE_HOME/spillway, or ~/.cache/spillway. Empty where
// neither variable names a folder (absolute, as the XDG specification asks). It may not be there
// yet.
std::filesystem::path UserCacheFolder();

// Makes it. Throws: Error kPath, which names the variable to set.
void MakeCacheFolder(const std::filesystem::path& folder);

// $TMPDIR/spillway-UID, or in /tmp. Throws: Error kPath when another user has something of that
// name there.
std::filesystem::path UserTemporaryFolder();

// Makes that folder, of mode 0700, where `folder` is its path; any other is the user's to make. One
// that cannot be made is refused where it is used.
void MakeIfUserTemporary(const std::filesystem::path& folder);

}  // namespace spillway
