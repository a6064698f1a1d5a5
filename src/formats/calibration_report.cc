#include "src/formats/calibration_report.h"

#include <algorithm>

#include "src/base/json_node.h"
#include "src/base/report_kind.h"
#include "src/formats/kv_policy_json.h"

namespace spillway {
namespace {

constexpr double kMostNats = 1000.0;

CalibratedKv ReadSetting(const JsonNode& node) {
  CalibratedKv setting;
  setting.bits = ReadKvBits(node.Member("kv_bits"));
  setting.kv = ReadKvPolicy(node.Member("kv"));
  setting.bytes_frac = node.Member("bytes_frac").Number(0.0, 10.0);
  for (const JsonNode& prompts : node.Member("prompts").Items()) {
    const double loss = prompts.Member("loss").Number(-kMostNats, kMostNats);
    const double divergence = prompts.Member("divergence").Number(-kMostNats, kMostNats);
    setting.loss = std::max({setting.loss, loss, divergence});
  }
  return setting;
}

}  // namespace

std::vector<CalibratedKv> ReadCalibration(const std::filesystem::path& file) {
  const JsonOrigin origin = {file.string(), ErrorCode::kPolicy,
                             "give what calibrate --report wrote with budgets per KV head"};
  const nlohmann::json document = ReadJsonFile(file, origin);
  const JsonNode root(document, origin);
  ExpectKind(root, ReportKind::kReport, origin.remedy);
  const JsonNode tried = root.Member("calibration").Member("tried");
  std::vector<CalibratedKv> settings;
  for (const JsonNode& setting : tried.Items()) settings.push_back(ReadSetting(setting));
  if (settings.empty()) tried.Refuse("is empty");
  return settings;
}

}  // namespace spillway
