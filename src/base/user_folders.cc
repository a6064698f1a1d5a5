#include "src/base/user_folders.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "spillway/error.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// An absolute path in a variable of the environment; empty otherwise.
fs::path FolderIn(const char* variable) {
  const char* text = std::getenv(variable);
  const fs::path path = text == nullptr ? "" : text;
  return path.is_absolute() ? path : fs::path();
}

}  // namespace

fs::path UserCacheFolder() {
  fs::path cache = FolderIn("XDG_CACHE_HOME");
  if (cache.empty()) {
    const fs::path home = FolderIn("HOME");
    if (home.empty()) return {};
    cache = home / ".cache";
  }
  return cache / "spillway";
}

void MakeCacheFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  ThrowSystemError(error.value(), fmt::format("{}: cannot be made", Printable(folder.string())),
                   ErrorCode::kPath, "set XDG_CACHE_HOME to a folder of yours");
}

fs::path UserTemporaryFolder() {
  const char* named = std::getenv("TMPDIR");
  const fs::path parent = named != nullptr && *named != '\0' ? named : "/tmp";
  fs::path folder = parent / fmt::format("spillway-{}", ::geteuid());
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) return folder;
  const bool own = S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
  const bool open = (status.st_mode & (S_IRWXG | S_IRWXO)) != 0;
  if (own && (!open || ::chmod(folder.c_str(), S_IRWXU) == 0)) return folder;
  throw Error(ErrorCode::kPath,
              fmt::format("{}: is not a folder of yours; remove it, or set TMPDIR to another",
                          Printable(folder.string())));
}

void MakeIfUserTemporary(const fs::path& folder) {
  if (folder == UserTemporaryFolder()) ::mkdir(folder.c_str(), S_IRWXU);
}

}  // namespace spillway
