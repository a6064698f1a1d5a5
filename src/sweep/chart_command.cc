#include "src/sweep/chart_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "src/base/shipped_path.h"

namespace spillway {

std::string ShellWord(const std::string& text) {
  constexpr std::string_view kPlain = "%+,-./:=@_";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ChartCommand(const std::filesystem::path& folder) {
  const auto script = ShippedPath(SPILLWAY_INSTALLED_PLOT_SWEEP, SPILLWAY_SOURCE_PLOT_SWEEP);
  if (!script) return "";
  // A folder whose name begins with a dash is no flag.
  const std::string name = folder.string();
  return fmt::format("python3 {} {}", ShellWord(script->string()),
                     ShellWord(name.starts_with('-') ? "./" + name : name));
}

}  // namespace spillway
