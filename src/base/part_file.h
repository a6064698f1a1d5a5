// PartFile: the place of a file or folder, NAME, and NAME.part beside it, where it is written until
// it is whole. All is done relative to their folder, which is opened once, and through no link.
// What fails is left in errno, for the owner of the place to put into words.
// Thread rule: one thread.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>

#include "src/base/descriptor.h"

namespace spillway {

// Fate of a NAME that is there when the part takes it.
enum class ExistingFile { kKeep, kReplace };

class PartFile {
 public:
  PartFile() = default;  // no place

  // Opens the folder of `path`; not valid() where that fails.
  explicit PartFile(const std::filesystem::path& path);

  bool valid() const { return folder_.valid(); }
  const Descriptor& folder() const { return folder_; }
  const std::string& name() const { return name_; }
  const std::string& part_name() const { return part_name_; }
  bool has_name() const;  // "", "." and ".." are none

  // Status of any file of the folder; nullopt where it fails.
  std::optional<struct stat> StatusOf(const std::string& name) const;

  // A file that was not there, for writing, mode 0644 less the umask.
  Descriptor Create(const std::string& name) const;

  // One that is there. `access` is O_RDONLY or O_RDWR; a pipe is not waited for.
  Descriptor Open(const std::string& name, int access) const;

  bool Remove(const std::string& name) const;

  // Gives the part its name. kKeep leaves a NAME that is there (EEXIST) where the filesystem can.
  // Requires: what was written is synced. The folder is the caller's to sync.
  bool Move(ExistingFile existing) const;

 private:
  std::string name_;
  std::string part_name_;
  Descriptor folder_;
};

// The folder of a path; "." where the path is a name alone.
std::filesystem::path FolderOf(const std::filesystem::path& path);

// PATH.part
std::filesystem::path PartPathOf(const std::filesystem::path& path);

// "a folder", "a symbolic link", "no regular file"; nullptr for a regular one.
const char* WhyNoFile(const struct stat& status);

}  // namespace spillway
