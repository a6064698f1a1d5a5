// RunPoint: one point of a sweep in a process of its own. A run then has its own peak of memory,
// and one that ends badly (a fault of the GPU, the system's killer of large processes) ends alone.
// Thread rule: the only thread of the process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/sweep/grid.h"

namespace spillway {

struct PointRun {
  int status = 0;           // what the program exited with; 128 + signal when one ended it
  std::string diagnostics;  // what it wrote to standard error, the first 64 KiB
  double wall_s = 0.0;
};

// The command line of a point, the program's name first.
std::vector<std::string> PointCommand(const SweepPoint& point);

// Runs this program with the point's settings alone: SPILLWAY_ variables do not reach it. `tick`
// is called a few times a second. A stop that is asked for meanwhile is handed on, and the run is
// waited for. It does not outlive this process.
// Throws: Error kSystemLimit, kInternal: it cannot be started.
PointRun RunPoint(const SweepPoint& point, const std::filesystem::path& report,
                  const std::function<void(double elapsed_s)>& tick);

}  // namespace spillway
