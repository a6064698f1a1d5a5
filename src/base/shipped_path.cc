#include "src/base/shipped_path.h"

#include <system_error>

namespace spillway {

namespace fs = std::filesystem;

fs::path InstalledPath(const fs::path& installed) {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path() / installed;
}

std::optional<fs::path> ShippedPath(const fs::path& installed, const fs::path& source) {
  std::error_code ignored;
  for (const fs::path& path : {InstalledPath(installed), source}) {
    if (fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

}  // namespace spillway
