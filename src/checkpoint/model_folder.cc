#include "src/checkpoint/model_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

[[noreturn]] void ThrowLeaves(const std::string& name) {
  throw Error(ErrorCode::kUnsafe,
              fmt::format("{}: a link that leaves the model folder; put the file itself there",
                          Printable(name)));
}

std::string LastComponent(const std::filesystem::path& path) {
  std::filesystem::path whole = path.lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  std::string name = whole.filename().string();
  if (!name.empty() && name != "." && name != "..") return name;
  std::error_code ignored;
  return std::filesystem::weakly_canonical(path, ignored).filename().string();
}

// The fd, or -1 with errno. Kernels and sandboxes without openat2 get O_NOFOLLOW, which is
// stricter.
int OpenBeneath(int folder, const std::string& name) {
  open_how how{};
  how.flags = kReadFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const long fd = ::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof(how));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
  return ::openat(folder, name.c_str(), kReadFlags | O_NOFOLLOW);
}

// Hugging Face's cache keeps snapshots/<revision>/<file> as a link to ../../blobs/<hash>.
bool IsCacheLink(std::string_view target) {
  bool climbs = false;
  while (target.starts_with("../")) {
    target.remove_prefix(3);
    climbs = true;
  }
  if (!climbs || !target.starts_with("blobs/")) return false;
  target.remove_prefix(6);
  return !target.empty() && target.size() <= 128 && std::ranges::all_of(target, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
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
  ThrowOpen(path.native(), errno);
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
  if (fd.get() < 0) ThrowOpen(name, errno);
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
  Descriptor fd(OpenBeneath(folder_.get(), name));
  if (fd.get() >= 0) return ModelFile(std::move(fd), name);
  if (errno != EXDEV && errno != ELOOP) ThrowOpen(name, errno);
  std::array<char, 512> target{};
  const ssize_t length = ::readlinkat(folder_.get(), name.c_str(), target.data(), target.size());
  if (length <= 0 || length == ssize_t{target.size()}) ThrowLeaves(name);
  const std::string link(target.data(), static_cast<std::size_t>(length));
  if (!IsCacheLink(link)) ThrowLeaves(name);
  Descriptor blob(::openat(folder_.get(), link.c_str(), kReadFlags | O_NOFOLLOW));
  if (blob.get() < 0) ThrowOpen(name, errno);
  return ModelFile(std::move(blob), name);
}

}  // namespace spillway
