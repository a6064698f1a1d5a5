#include "src/base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>

namespace spillway {
namespace {

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

// `missing` where the file is absent, as in some containers.
int ReadInt(const std::string& path, int missing) {
  std::ifstream file(path);
  int value = missing;
  if (!(file >> value)) return missing;
  return value;
}

// CPUs' worth of time per period that a cgroup v2 folder grants; infinity when unlimited or absent.
double QuotaV2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0)
    return std::numeric_limits<double>::infinity();
  return std::strtod(quota.c_str(), nullptr) / period;
}

double QuotaV1(const std::string& folder) {
  const int quota = ReadInt(folder + "/cpu.cfs_quota_us", -1);
  const int period = ReadInt(folder + "/cpu.cfs_period_us", -1);
  if (quota <= 0 || period <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(quota) / period;
}

// The tightest quota of this process's cgroup and its parents.
double CgroupCpus() {
  double cpus = std::min(QuotaV2("/sys/fs/cgroup"), QuotaV1("/sys/fs/cgroup/cpu"));
  std::ifstream file("/proc/self/cgroup");  // lines "id:controllers:/path"
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (std::string path = line.substr(second + 1); path.size() > 1;
         path.resize(path.rfind('/'))) {
      if (controllers.empty()) cpus = std::min(cpus, QuotaV2("/sys/fs/cgroup" + path));
      if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
        cpus = std::min(cpus, QuotaV1("/sys/fs/cgroup/cpu" + path));
      }
    }
  }
  return cpus;
}

}  // namespace

std::vector<int> PhysicalCores() {
  std::set<std::pair<int, int>> seen;  // (package, core)
  std::vector<int> cores;
  for (const int cpu : AllowedCpus()) {
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const int package = ReadInt(topology + "physical_package_id", 0);
    const int core = ReadInt(topology + "core_id", -1 - cpu);  // unknown: every CPU is a core
    if (seen.emplace(package, core).second) cores.push_back(cpu);
  }
  // A quota of 1.5 CPUs feeds two threads badly (both are stopped for the rest of the period), so
  // round down.
  const double quota = std::max(1.0, std::floor(CgroupCpus()));
  if (static_cast<double>(cores.size()) > quota) cores.resize(static_cast<size_t>(quota));
  return cores;
}

}  // namespace spillway
