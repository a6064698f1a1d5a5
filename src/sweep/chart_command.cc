#include "src/sweep/chart_command.h"

#include <fmt/format.h>

#include <optional>

#include "src/base/shell_word.h"
#include "src/base/shipped_path.h"

namespace spillway {

std::string ChartCommand(const std::filesystem::path& folder) {
  const auto script = ShippedPath(SPILLWAY_INSTALLED_PLOT_SWEEP, SPILLWAY_SOURCE_PLOT_SWEEP);
  if (!script) return "";
  return fmt::format("python3 {} {}", ShellPath(*script), ShellPath(folder));
}

}  // namespace spillway
