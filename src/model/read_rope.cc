#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/model/family.h"

namespace spillway {
namespace {

constexpr auto kOriginal = "original_max_position_embeddings";

struct NumberRange {
  double low;
  double high;
};
constexpr NumberRange kThetas = {1.0, 1e12};
constexpr NumberRange kFactors = {1e-6, 1e6};
constexpr NumberRange kStretches = {1.0, 1e6};
constexpr NumberRange kScales = {0.0, 1e6};
constexpr NumberRange kParts = {0.0, 1.0};

// Refuses what no scaling has; one ignores the settings of another one.
void RefuseOtherSettings(const JsonNode& node) {
  RefuseOtherKeys(node, {"attention_factor", "beta_fast", "beta_slow", "factor", "finetuned",
                         "high_freq_factor", "long_factor", "low_freq_factor", "mscale",
                         "mscale_all_dim", kOriginal, "partial_rotary_factor", "rope_theta",
                         "rope_type", "short_factor", "truncate", "type"});
}

double Number(const JsonNode& node, std::string_view key, NumberRange range) {
  return node.Member(key).Number(range.low, range.high);
}

double NumberOr(const JsonNode& node, std::string_view key, NumberRange range, double fallback) {
  return node.FindSet(key) ? Number(node, key, range) : fallback;
}

// Sources of a scaling: config.json, and the object in it that holds the settings of rotary
// positions.
struct RopeSource {
  const JsonNode& config;
  const JsonNode& node;
  const Rope& rope;  // without its scaling

  double Factor(std::string_view key, double fallback) const {
    return NumberOr(node, key, kFactors, fallback);
  }
  int64_t MostPositions() const {
    return config.Member("max_position_embeddings").Integer(kPositionRange);
  }
  // Prefers config.json's own number to the object's, as transformers does.
  int64_t OriginalPositions() const {
    const JsonNode& of = config.FindSet(kOriginal) ? config : node;
    return of.FindSet(kOriginal) ? of.Member(kOriginal).Integer(kPositionRange) : MostPositions();
  }
  // "factor", or how much longer rows may be than those of training.
  double LengthFactor(int64_t original) const {
    const double ratio = static_cast<double>(MostPositions()) / static_cast<double>(original);
    return Factor("factor", ratio);
  }
};

RopeScaling ReadLinear(const RopeSource& source) {
  return {RopeScalingKind::kLinear, Number(source.node, "factor", kStretches)};
}

RopeScaling ReadLlama3(const RopeSource& source) {
  const JsonNode& node = source.node;
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::kLlama3;
  scaling.factor = Number(node, "factor", kStretches);
  scaling.low_frequency = Number(node, "low_freq_factor", kFactors);
  scaling.high_frequency = Number(node, "high_freq_factor", kFactors);
  scaling.original_positions = source.OriginalPositions();
  if (scaling.low_frequency < scaling.high_frequency) return scaling;
  node.Refuse("\"low_freq_factor\" is not below \"high_freq_factor\"");
}

RopeScaling ReadDynamic(const RopeSource& source) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::kDynamic;
  scaling.factor = Number(source.node, "factor", kStretches);
  scaling.original_positions = source.MostPositions();
  if (source.rope.dims > 2) return scaling;
  source.node.Refuse("\"rope_type\" is \"dynamic\", which takes more than one pair of a head");
}

// YaRN's factor of a context that is `factor` times as long.
double YarnScale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double YarnAttentionFactor(const RopeSource& source, double factor) {
  const double mscale = NumberOr(source.node, "mscale", kScales, 0.0);
  const double all_dims = NumberOr(source.node, "mscale_all_dim", kScales, 0.0);
  if (mscale == 0.0 || all_dims == 0.0) return YarnScale(factor, 1.0);
  return YarnScale(factor, mscale) / YarnScale(factor, all_dims);
}

RopeScaling ReadYarn(const RopeSource& source) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::kYarn;
  scaling.original_positions = source.OriginalPositions();
  scaling.factor = source.LengthFactor(scaling.original_positions);
  scaling.fast_turns = source.Factor("beta_fast", scaling.fast_turns);
  scaling.slow_turns = source.Factor("beta_slow", scaling.slow_turns);
  scaling.whole_pairs = source.node.Boolean("truncate", true);
  scaling.attention_factor =
      source.Factor("attention_factor", YarnAttentionFactor(source, scaling.factor));
  if (source.rope.theta > 1.0) return scaling;
  source.node.Refuse("\"rope_theta\" is 1, which leaves \"yarn\" no waves to tell apart");
}

std::vector<double> ReadFactors(const RopeSource& source, const char* key) {
  const JsonNode list = source.node.Member(key);
  std::vector<double> factors;
  for (const JsonNode& item : list.Items())
    factors.push_back(item.Number(kFactors.low, kFactors.high));
  if (std::ssize(factors) == source.rope.dims / 2) return factors;
  list.Refuse(fmt::format("\"{}\" has {} numbers, but {} pairs of a head are turned", key,
                          factors.size(), source.rope.dims / 2));
}

double LongAttentionFactor(double factor, int64_t original) {
  if (factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original)));
}

RopeScaling ReadLong(const RopeSource& source) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::kLong;
  if (!source.config.FindSet(kOriginal)) source.node.Member(kOriginal);
  scaling.original_positions = source.OriginalPositions();
  scaling.factor = source.LengthFactor(scaling.original_positions);
  scaling.short_factors = ReadFactors(source, "short_factor");
  scaling.long_factors = ReadFactors(source, "long_factor");
  if (scaling.original_positions < 2) source.node.Refuse("its original context is one token");
  scaling.attention_factor = source.Factor(
      "attention_factor", LongAttentionFactor(scaling.factor, scaling.original_positions));
  return scaling;
}

RopeScaling ReadScaling(const RopeSource& source) {
  using Read = RopeScaling (*)(const RopeSource&);
  constexpr std::array<std::pair<std::string_view, Read>, 6> kKinds = {{{"linear", ReadLinear},
                                                                        {"llama3", ReadLlama3},
                                                                        {"yarn", ReadYarn},
                                                                        {"dynamic", ReadDynamic},
                                                                        {"longrope", ReadLong},
                                                                        {"su", ReadLong}}};
  const JsonNode& node = source.node;
  const std::string kind = node.Text(node.FindSet("rope_type") ? "rope_type" : "type", "default");
  if (kind == "default") return {};
  for (const auto& [name, read] : kKinds) {
    if (name == kind) return read(source);
  }
  node.Refuse(ErrorCode::kModelUnsupported,
              fmt::format("\"rope_type\" is \"{}\", supported are default, linear, llama3, yarn, "
                          "dynamic and longrope",
                          Printable(kind, 40)),
              "choose another model");
}

int64_t RotaryDims(const JsonNode& node, double part, int64_t head_dim) {
  const auto dims = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  if (dims > 0 && dims % 2 == 0) return dims;
  node.Refuse(fmt::format("{} of a head's {} elements are turned, which are no whole pairs", dims,
                          head_dim));
}

// "rope_scaling" beside "rope_parameters" stands for all of it, as in transformers, which then
// takes another theta than a reader would.
void RefuseLostTheta(const JsonNode& newer, double theta) {
  if (NumberOr(newer, "rope_theta", kThetas, theta) == theta) return;
  newer.Refuse(ErrorCode::kModelUnsupported,
               "\"rope_scaling\" stands for all of \"rope_parameters\", which has another "
               "\"rope_theta\" than it",
               "write all of it into \"rope_parameters\", and leave \"rope_scaling\" out");
}

// The object of this key, unless it says nothing.
std::optional<JsonNode> FindFilled(const JsonNode& config, std::string_view key) {
  std::optional<JsonNode> found = config.FindSet(key);
  if (found && found->value().empty()) found.reset();
  return found;
}

}  // namespace

Rope ReadRope(const JsonNode& config, int64_t head_dim, const RopeKeys& keys) {
  const std::optional<JsonNode> newer = FindFilled(config, "rope_parameters");
  const std::optional<JsonNode> older = FindFilled(config, "rope_scaling");
  const JsonNode& node = older ? *older : newer ? *newer : config;
  Rope rope;
  rope.theta = NumberOr(config, keys.theta, kThetas, keys.usual_theta);
  rope.theta = NumberOr(node, "rope_theta", kThetas, rope.theta);
  if (older && newer) RefuseLostTheta(*newer, rope.theta);
  const double part = NumberOr(config, keys.part, kParts, keys.usual_part);
  rope.dims = RotaryDims(node, NumberOr(node, "partial_rotary_factor", kParts, part), head_dim);
  if (newer || older) {
    RefuseOtherSettings(node);
    rope.scaling = ReadScaling({config, node, rope});
  }
  return rope;
}

void SetRope(const Rope& rope, ModelShape& shape) {
  shape.rope = rope;
  const RopeScaling& scaling = rope.scaling;
  if (scaling.kind != RopeScalingKind::kYarn && scaling.kind != RopeScalingKind::kDynamic) return;
  const double most = scaling.factor * static_cast<double>(scaling.original_positions);
  shape.max_positions =
      std::max(shape.max_positions, std::min(static_cast<int64_t>(most), kPositionRange.high));
}

}  // namespace spillway
