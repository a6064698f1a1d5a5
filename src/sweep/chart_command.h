// Command that draws the charts of a sweep: scripts/plot_sweep.py, which comes with the program.
// Thread rule: pure function of the file system; any thread.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

// "python3 /usr/share/spillway/plot_sweep.py out/bundled", to be typed into a shell; empty where
// the script is not there.
std::string ChartCommand(const std::filesystem::path& folder);

}  // namespace spillway
