#include "src/io/disk_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::string_view kAnother = "give another --offload-dir";

[[noreturn]] void Refuse(const std::filesystem::path& path, std::string_view reason,
                         std::string_view remedy = kAnother) {
  throw Error(ErrorCode::kPath,
              fmt::format("{}: {}; {}", Printable(path.native()), reason, remedy));
}

Descriptor OpenFolder(const std::filesystem::path& path, FolderTrust trust) {
  const int nofollow = trust == FolderTrust::kChecked ? O_NOFOLLOW : 0;
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | nofollow));
  if (folder.valid()) return folder;
  if (errno == EMFILE || errno == ENFILE) {
    throw Error(ErrorCode::kSystemLimit,
                fmt::format("{}: {}; raise the limit on open files (ulimit -n)",
                            Printable(path.native()), std::strerror(errno)));
  }
  const int error = errno;
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    Refuse(path, "is a symbolic link, which others could redirect",
           "give the folder that it leads to as --offload-dir");
  }
  Refuse(path, std::strerror(error));
}

// Walks up with "..", which follows the real tree and not the names the path was given by.
void CheckAbove(const std::filesystem::path& path, int folder) {
  struct stat below {};
  if (::fstat(folder, &below) != 0) Refuse(path, std::strerror(errno));
  Descriptor at(::openat(folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (at.valid()) {
    struct stat above {};
    if (::fstat(at.get(), &above) != 0) Refuse(path, std::strerror(errno));
    if ((above.st_mode & S_IWOTH) != 0 && (above.st_mode & S_ISVTX) == 0) {
      Refuse(path, "a folder above it is writable by everybody and not sticky",
             "make that one sticky (chmod +t) or give another --offload-dir");
    }
    if (above.st_ino == below.st_ino && above.st_dev == below.st_dev) return;
    below = above;
    at = Descriptor(::openat(at.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  // A folder above that we may search but not list says nothing about who may write; that is as
  // far as this user can look.
}

}  // namespace

DiskFolder::DiskFolder(const std::filesystem::path& path, FolderTrust trust)
    : path_(path), folder_(OpenFolder(path, trust)) {
  if (::faccessat(folder_.get(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    Refuse(path, std::string("cannot be written: ") + std::strerror(errno));
  }
  if (trust == FolderTrust::kChecked) CheckAbove(path, folder_.get());
}

int64_t DiskFolder::FreeBytes() const {
  struct statvfs status {};
  if (::fstatvfs(folder_.get(), &status) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("{}: {}; check the disk", Printable(path_.native()),
                                            std::strerror(errno)));
  }
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

std::string_view DiskFolder::FilesystemKind() const {
  struct statfs status {};
  if (::fstatfs(folder_.get(), &status) != 0) return "other";
  switch (status.f_type) {
    case TMPFS_MAGIC:
      return "tmpfs";
    case NFS_SUPER_MAGIC:
      return "nfs";
    case OVERLAYFS_SUPER_MAGIC:
      return "overlay";
    default:
      return "other";
  }
}

}  // namespace spillway
