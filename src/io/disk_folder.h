// A folder of the disk tier, held open: everything in it is opened relative to it, so that nobody
// can put another folder in its place during the run. Thread rule: const methods from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "src/base/descriptor.h"

namespace spillway {

// kChecked refuses a folder that is a symbolic link, and one that others may rename or replace
// because a folder above it is writable by everybody and not sticky. kAsGiven takes any.
enum class FolderTrust { kChecked, kAsGiven };

class DiskFolder {
 public:
  // Throws: Error kPath: missing, not a folder, not writable, or refused by `trust`; kSystemLimit.
  explicit DiskFolder(const std::filesystem::path& path, FolderTrust trust = FolderTrust::kChecked);

  int fd() const { return folder_.get(); }
  const std::filesystem::path& path() const { return path_; }

  // Bytes that are free for this user now. Throws: Error kIo.
  int64_t FreeBytes() const;

  // "tmpfs", "nfs", "overlay" or "other": the first three are worth a warning as a disk tier.
  std::string_view FilesystemKind() const;

 private:
  std::filesystem::path path_;
  Descriptor folder_;
};

}  // namespace spillway
