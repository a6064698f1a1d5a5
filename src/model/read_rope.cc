#include <fmt/format.h>

#include <optional>

#include "spillway/error.h"
#include "src/model/family.h"

namespace spillway {
namespace {

constexpr double kMostTheta = 1e12;
constexpr double kMostFactor = 1e6;

double NumberOr(const JsonNode& node, const char* key, double low, double high, double fallback) {
  const std::optional<JsonNode> found = node.FindSet(key);
  return found ? found->Number(low, high) : fallback;
}

RopeScaling ReadLlama3(const JsonNode& node) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::kLlama3;
  scaling.factor = node.Member("factor").Number(1.0, kMostFactor);
  scaling.low_frequency = node.Member("low_freq_factor").Number(1e-6, kMostFactor);
  scaling.high_frequency = node.Member("high_freq_factor").Number(1e-6, kMostFactor);
  scaling.original_positions =
      node.Member("original_max_position_embeddings").Integer(kPositionRange);
  if (scaling.low_frequency < scaling.high_frequency) return scaling;
  node.Refuse("\"low_freq_factor\" is not below \"high_freq_factor\"");
}

RopeScaling ReadScaling(const JsonNode& node) {
  const std::string kind = node.Text(node.Find("rope_type") ? "rope_type" : "type", "default");
  if (kind == "default") return {};
  if (kind == "linear") {
    return {RopeScalingKind::kLinear, node.Member("factor").Number(1.0, kMostFactor)};
  }
  if (kind == "llama3") return ReadLlama3(node);
  node.Refuse(ErrorCode::kModelUnsupported,
              fmt::format("\"rope_type\" is \"{}\", supported are default, linear and llama3",
                          Printable(kind, 40)),
              "choose another model");
}

}  // namespace

Rope ReadRope(const JsonNode& config, int64_t dims) {
  Rope rope;
  rope.dims = dims;
  rope.theta = NumberOr(config, "rope_theta", 1.0, kMostTheta, rope.theta);
  if (const std::optional<JsonNode> node = config.FindSet("rope_parameters")) {
    rope.theta = NumberOr(*node, "rope_theta", 1.0, kMostTheta, rope.theta);
    rope.scaling = ReadScaling(*node);
  } else if (const std::optional<JsonNode> older = config.FindSet("rope_scaling")) {
    rope.scaling = ReadScaling(*older);
  }
  return rope;
}

}  // namespace spillway
