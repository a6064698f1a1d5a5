// Cache in which `profile` keeps its machine file for later runs on the same machine:
// $XDG_CACHE_HOME/spillway/machine-KEY.json, or ~/.cache/... Thread rule: the main thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spillway/machine.h"

namespace spillway {

// Properties of a host that its rates depend on.
struct ProfileKey {
  std::string processor;
  std::string isa;
  int num_threads = 1;
  uint64_t disk_device = 0;  // of the folder of the disk tier
};

// Key of this host. `folder` need not exist: its device counts as 0 then.
ProfileKey MakeProfileKey(const Machine& machine, const std::filesystem::path& folder);

// Empty where neither variable names a folder (absolute, as the XDG specification asks).
std::filesystem::path CachedProfilePath(const ProfileKey& key);

// The machine as an earlier `profile` found it; nullopt where there is none. A file that cannot be
// used is passed over with one warning line on stderr; one that was disturbed is used with one.
std::optional<Machine> CachedProfile(const ProfileKey& key);

// Tells whether there is a profile that was not disturbed.
bool HasQuietProfile(const ProfileKey& key);

// All profiles that are kept on this host, whatever they are of, by name.
std::vector<std::filesystem::path> CachedProfiles();

// Puts `machine` there, making the folders. Throws: Error kPath, kIo, kDiskSpace, kSystemLimit.
void CacheProfile(const std::filesystem::path& path, const Machine& machine);

}  // namespace spillway
