// Logical CPUs that the compute threads should sit on. Reads /sys and /proc; any thread.
#pragma once

#include <vector>

namespace spillway {

// One logical CPU per physical core in this thread's affinity mask, cut to the cgroup's CPU quota;
// never empty.
std::vector<int> PhysicalCores();

}  // namespace spillway
