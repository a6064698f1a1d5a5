#include "src/base/host.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "spillway/error.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// "MemAvailable:   12345 kB" lines of /proc files, in bytes; -1 when absent.
int64_t KilobyteField(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    int64_t kilobytes = 0;
    std::istringstream(line.substr(key.size())) >> kilobytes;
    return kilobytes * 1024;
  }
  return -1;
}

// A file may be missing; one that cannot be opened for want of descriptors would pass for it, and
// its limit for none.
std::ifstream OpenLimit(const fs::path& path) {
  errno = 0;
  std::ifstream in(path);
  if (!in && (errno == EMFILE || errno == ENFILE))
    ThrowSystemError(errno, Printable(path.string()), ErrorCode::kSystemLimit, "");
  return in;
}

// A file that holds one number; -1 when it is missing or says "max".
int64_t NumberIn(const fs::path& path) {
  std::ifstream in = OpenLimit(path);
  int64_t number = -1;
  return in >> number ? number : -1;
}

// "key value" lines, as in memory.stat.
int64_t StatField(const fs::path& path, const std::string& key) {
  std::ifstream in = OpenLimit(path);
  std::string name;
  for (int64_t number = 0; in >> name >> number;) {
    if (name == key) return number;
  }
  return 0;
}

// Memory that one cgroup still allows. File pages are given back under pressure, so they do not
// count as used.
int64_t GroupHeadroom(const fs::path& group, const char* limit_file, const char* usage_file,
                      const char* cache_key) {
  const int64_t limit = NumberIn(group / limit_file);
  const int64_t usage = NumberIn(group / usage_file);
  if (limit < 0 || usage < 0) return std::numeric_limits<int64_t>::max();
  const int64_t cache = StatField(group / "memory.stat", cache_key);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, usage - cache));
}

// Walks from this process's cgroup to the root; a limit may be set at any level.
int64_t CgroupHeadroom() {
  int64_t headroom = std::numeric_limits<int64_t>::max();
  std::ifstream in = OpenLimit("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) continue;
    const fs::path root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    fs::path relative = fs::path(line.substr(second + 1)).relative_path();
    while (true) {
      const fs::path group = root / relative;
      headroom =
          std::min(headroom, v2 ? GroupHeadroom(group, "memory.max", "memory.current", "file")
                                : GroupHeadroom(group, "memory.limit_in_bytes",
                                                "memory.usage_in_bytes", "total_cache"));
      if (relative.empty()) break;
      relative = relative.parent_path();
    }
  }
  return headroom;
}

}  // namespace

int64_t AvailableMemoryBytes() {
  OpenLimit("/proc/meminfo");
  const int64_t available = KilobyteField("/proc/meminfo", "MemAvailable:");
  return std::min(available < 0 ? 0 : available, CgroupHeadroom());
}

int64_t ResidentBytes() {
  return std::max<int64_t>(0, KilobyteField("/proc/self/status", "VmRSS:"));
}

int64_t PeakResidentBytes() {
  return std::max<int64_t>(0, KilobyteField("/proc/self/status", "VmHWM:"));
}

void ForgetPeakResidentBytes() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::string ProcessorName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, 10, "model name") != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace spillway
