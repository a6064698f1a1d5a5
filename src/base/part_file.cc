#include "src/base/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace spillway {

PartFile::PartFile(const std::filesystem::path& path)
    : name_(path.filename().string()), part_name_(name_ + ".part") {
  folder_ = Descriptor(::open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

bool PartFile::has_name() const { return !name_.empty() && name_ != "." && name_ != ".."; }

std::optional<struct stat> PartFile::StatusOf(const std::string& name) const {
  struct stat status {};
  if (::fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return std::nullopt;
  return status;
}

Descriptor PartFile::Create(const std::string& name) const {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  return Descriptor(::openat(folder_.get(), name.c_str(), kFlags, 0644));
}

Descriptor PartFile::Open(const std::string& name, int access) const {
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  return Descriptor(::openat(folder_.get(), name.c_str(), access | kFlags));
}

bool PartFile::Remove(const std::string& name) const {
  return ::unlinkat(folder_.get(), name.c_str(), 0) == 0;
}

bool PartFile::Move(ExistingFile existing) const {
  if (existing == ExistingFile::kKeep) {
    if (::renameat2(folder_.get(), part_name_.c_str(), folder_.get(), name_.c_str(),
                    RENAME_NOREPLACE) == 0)
      return true;
    if (errno != EINVAL) return false;  // otherwise a filesystem without the flag
  }
  return ::renameat(folder_.get(), part_name_.c_str(), folder_.get(), name_.c_str()) == 0;
}

std::filesystem::path FolderOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

std::filesystem::path PartPathOf(const std::filesystem::path& path) {
  return path.string() + ".part";
}

const char* WhyNoFile(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return nullptr;
  if (S_ISDIR(status.st_mode)) return "a folder";
  return S_ISLNK(status.st_mode) ? "a symbolic link" : "no regular file";
}

}  // namespace spillway
