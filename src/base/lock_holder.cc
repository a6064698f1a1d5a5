#include "src/base/lock_holder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdint>
#include <fstream>
#include <sstream>

namespace spillway {

std::string LockHolderText(const Descriptor& file) {
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return "";
  const std::string wanted =
      fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"; of one who waits, "1: -> FLOCK ...".
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, strength, access, place;
    int64_t process = 0;
    words >> number >> kind >> strength >> access >> process >> place;
    // A process of another container has no number here.
    if (kind == "FLOCK" && place == wanted && process > 0)
      return fmt::format(" (process {})", process);
  }
  return "";
}

}  // namespace spillway
