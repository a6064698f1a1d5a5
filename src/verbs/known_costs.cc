#include "src/verbs/known_costs.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "src/base/json_node.h"
#include "src/base/json_text.h"

namespace spillway {
namespace {

std::filesystem::path PathBeside(const std::filesystem::path& output) {
  std::error_code ignored;
  const bool is_file = !output.empty() && output != "-" &&
                       (!std::filesystem::exists(output, ignored) ||
                        std::filesystem::is_regular_file(output, ignored));
  if (!is_file) return {};
  std::filesystem::path path = output;
  return path += ".costs";
}

}  // namespace

KnownCosts::KnownCosts(const std::filesystem::path& output, const OtherFiles& others)
    : path_(PathBeside(output)), file_(ReportKind::kCosts, "--output", path_, others) {}

std::vector<double> KnownCosts::Read(const std::string& identity, std::size_t most) {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return {};
  const JsonOrigin origin = {path_.string()};
  try {
    const nlohmann::json document = ReadJsonFile(path_, origin);
    const JsonNode root(document, origin);
    if (root.Member("identity").Text() != identity) {
      holds_other_ = true;
      return {};
    }
    std::vector<double> costs;
    for (const JsonNode& cost : root.Member("costs").Items())
      costs.push_back(cost.Number(0.0, 1e9));
    return costs.size() <= most ? costs : std::vector<double>();
  } catch (const Error&) {
    return {};
  }
}

void KnownCosts::Write(const std::string& identity, const std::vector<double>& costs) {
  if (path_.empty()) return;
  if (std::exchange(holds_other_, false)) {
    std::error_code ignored;  // where it cannot be kept it is replaced
    std::filesystem::rename(path_, path_.parent_path() / kept_name(), ignored);
  }
  auto json = nlohmann::ordered_json::object();
  json["identity"] = identity;
  json["costs"] = costs;
  file_.Write(JsonFileText(json));
}

}  // namespace spillway
