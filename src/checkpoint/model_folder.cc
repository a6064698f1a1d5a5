#include "src/checkpoint/model_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "spillway/error.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

// O_NONBLOCK: opening a FIFO that nobody writes to must not hang.
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;

[[noreturn]] void ThrowOpen(const std::string& name, int error) {
  if (error == EIO || error == ESTALE)
    ThrowSystemError(error, Printable(name), ErrorCode::kIo, "check the disk");
  ThrowSystemError(error, Printable(name), ErrorCode::kModelMissing,
                   "check --model and the file's permissions");
}

// Names of a model's files are often links, into a cache that may have been cleared.
[[noreturn]] void ThrowDangling(const std::string& name, std::string_view remedy) {
  throw Error(ErrorCode::kModelMissing,
              fmt::format("{}: a link to what is not there; {}", Printable(name), remedy));
}

bool IsLink(int folder, const std::string& name) {
  struct stat status {};
  return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(status.st_mode);
}

std::string LastComponent(const std::filesystem::path& path) {
  std::filesystem::path whole = path.lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  std::string name = whole.filename().string();
  if (!name.empty() && name != "." && name != "..") return name;
  std::error_code ignored;
  return std::filesystem::weakly_canonical(path, ignored).filename().string();
}

}  // namespace

ModelFolder::ModelFolder(const std::filesystem::path& path)
    : path_(path), name_(LastComponent(path)) {
  folder_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_.get() >= 0) return;
  if (errno == ENOTDIR) {
    throw Error(
        ErrorCode::kModelMissing,
        fmt::format("{}: not a folder; give the folder that holds config.json and the weights",
                    Printable(path.native())));
  }
  const int error = errno;
  if (error == ENOENT && IsLink(AT_FDCWD, path.native()))
    ThrowDangling(path.native(), "give --model the folder itself");
  ThrowOpen(path.native(), error);
}

bool ModelFolder::Has(const std::string& name) const {
  struct stat status {};
  return ::fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

std::vector<std::string> ModelFolder::List() const {
  // A fresh descriptor: closedir closes it, and the position in the directory is its own.
  const int fd = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) ThrowOpen(path_.native(), errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(fd), ::closedir);
  if (directory == nullptr) ThrowOpen(path_.native(), errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) names.emplace_back(entry->d_name);
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> ModelFolder::Files() const {
  std::vector<std::string> names = List();
  std::erase_if(names, [this](const std::string& name) {
    struct stat status {};
    return name.starts_with('.') || ::fstatat(folder_.get(), name.c_str(), &status, 0) != 0 ||
           !S_ISREG(status.st_mode);
  });
  return names;
}

ModelFile ModelFolder::Open(const std::string& name) const {
  Descriptor fd(::openat(folder_.get(), name.c_str(), kReadFlags));
  const int error = errno;
  if (fd.get() < 0 && error == ENOENT && IsLink(folder_.get(), name))
    ThrowDangling(name, "download the model again, which fills the cache that it leads to");
  if (fd.get() < 0) ThrowOpen(name, error);
  return ModelFile(std::move(fd), name);
}

void ModelFolder::CheckName(std::string_view name, std::string_view source) {
  const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                     name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
  if (plain) return;
  throw Error(ErrorCode::kUnsafe,
              fmt::format("{}: names the file \"{}\", which is not a plain file name; do not use "
                          "this model",
                          Printable(source), Printable(name)));
}

ModelFile ModelFolder::OpenNamed(const std::string& name) const {
  CheckName(name, name_);
  struct stat link {};
  struct stat folder {};
  if (::fstatat(folder_.get(), name.c_str(), &link, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::fstat(folder_.get(), &folder) != 0)
    ThrowOpen(name, errno);
  const bool trusted =
      link.st_uid == ::geteuid() || link.st_uid == folder.st_uid || link.st_uid == 0;
  if (S_ISLNK(link.st_mode) && !trusted) {
    throw Error(
        ErrorCode::kUnsafe,
        fmt::format("{}: a link that user {} made, who does not own the model folder; put the "
                    "file itself there",
                    Printable(name), link.st_uid));
  }
  return Open(name);
}

}  // namespace spillway
