#include "src/formats/shipped_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include "spillway/error.h"
#include "src/base/shipped_path.h"
#include "src/base/suggestion.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> Folder() {
  return ShippedPath(SPILLWAY_INSTALLED_MACHINES, SPILLWAY_SOURCE_MACHINES);
}

bool IsPath(const std::string& text) {
  return text.empty() || text.find('/') != std::string::npos || text.ends_with(".json");
}

}  // namespace

std::vector<std::string> ShippedMachines() {
  std::vector<std::string> names;
  const std::optional<fs::path> folder = Folder();
  if (!folder) return names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(*folder, error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

fs::path MachinePath(const std::string& text) {
  std::error_code error;
  if (IsPath(text) || fs::exists(text, error)) return text;
  const std::vector<std::string> names = ShippedMachines();
  if (std::ranges::find(names, text) != names.end()) return *Folder() / (text + ".json");
  const std::string there =
      names.empty() ? "none does" : fmt::format("there are {}", fmt::join(names, ", "));
  throw Error(
      ErrorCode::kMachine,
      fmt::format("{}: no such file, and no machine of that name comes with the program{}; {}",
                  Printable(text), Suggestion(text, names, ""), there));
}

}  // namespace spillway
