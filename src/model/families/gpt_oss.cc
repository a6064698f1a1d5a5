// gpt-oss (OpenAI 2025): Llama's block with a sink in each head's softmax, windows in every other
// layer, and experts with biases, whose gates are clamped.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/model/families/expert_keys.h"
#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr ExpertNames kNames = {.router = "router", .stacks = ExpertStacks::kInterleaved};
constexpr RopeKeys kRopeKeys = {.usual_theta = 150000.0};
constexpr int64_t kUsualWindow = 128;

// YaRN as transformers has it where config.json says nothing.
RopeScaling UsualScaling() {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::kYarn;
  scaling.factor = 32.0;
  scaling.original_positions = 4096;
  scaling.whole_pairs = false;
  scaling.attention_factor = 0.1 * std::log(scaling.factor) + 1.0;
  return scaling;
}

Rope ReadPositions(const JsonNode& config, int64_t head_dim) {
  Rope rope = ReadRope(config, head_dim, kRopeKeys);
  if (!config.FindSet("rope_parameters") && !config.FindSet("rope_scaling"))
    rope.scaling = UsualScaling();
  return rope;
}

// A number that the kernels have built in.
void RequireNumber(const JsonNode& config, std::string_view key, float value) {
  const std::optional<JsonNode> found = config.FindSet(key);
  if (!found || static_cast<float>(found->Number(0.0, 1e6)) == value) return;
  config.Refuse(
      ErrorCode::kModelUnsupported,
      fmt::format("\"{}\" is {}, and only {} is supported", key, found->Number(0.0, 1e6), value),
      "choose another model");
}

// Every other layer has a window, the first one too, where "layer_types" does not say it.
void ReadWindows(const JsonNode& config, ModelShape& shape) {
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  for (int64_t layer = std::ssize(windowed); layer < shape.num_layers; ++layer)
    windowed.push_back(layer % 2 == 0);
  SetWindows(config, ReadWindow(config, kUsualWindow), std::move(windowed), shape);
}

// Of the keys "experts_per_token" and "initial_context_length" are older names, which transformers
// does not read either.
ModelShape Read(const JsonNode& config) {
  std::vector<std::string_view> own = ExpertTrainingKeys();
  own.insert(own.end(), {"attention_bias", "experts_per_token", "initial_context_length",
                         "layer_types", "num_experts", "num_experts_per_tok", "num_local_experts",
                         "sliding_window", "swiglu_alpha", "swiglu_limit"});
  const LlamaDefaults defaults = {.max_positions = 131072, .head_dim = 64, .own_rope = true};
  ModelShape shape = ReadLlamaKeys(config, defaults, std::move(own));
  SetRope(ReadPositions(config, shape.head_dim), shape);
  RequireNumber(config, "swiglu_alpha", kSwishSlope);
  RequireNumber(config, "swiglu_limit", kClampLimit);
  shape.activation = Activation::kClampedSwish;
  shape.norm_epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-5);
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", true);
  shape.score_sinks = true;
  shape.experts = ReadExpertCounts(config, "num_experts", shape.num_layers);
  shape.experts.ffn_size = shape.ffn_size;
  shape.experts.biased = true;
  ReadWindows(config, shape);
  return shape;
}

void AddLayers(const ModelShape& shape, ModelBuilder& model) {
  AddLlamaLayers(shape, {.experts = kNames}, model);
}

std::vector<ModelShape> Sizes() {
  const auto of = [](std::string_view name, int64_t num_layers, int64_t num_experts) {
    ModelShape shape = LlamaBlock(201088, 131072, kRopeKeys.usual_theta);
    shape.activation = Activation::kClampedSwish;
    shape.norm_epsilon = 1e-5;
    shape.qkv_bias = shape.out_bias = true;
    shape.score_sinks = true;
    shape.rope.scaling = UsualScaling();
    shape.experts = {
        .num = num_experts, .top_k = 4, .ffn_size = 2880, .biased = true, .mxfp4 = true};
    shape.window = kUsualWindow;
    for (int64_t layer = 0; layer < num_layers; ++layer) shape.windowed.push_back(layer % 2 == 0);
    return WithLlamaSize(shape, {{name, num_layers, 2880, 64}, 8, 2880, false, 64});
  };
  return {of("gpt-oss-20b", 24, 32), of("gpt-oss-120b", 36, 128)};
}

}  // namespace

const Family kGptOss = {.model_type = "gpt_oss",
                        .read = Read,
                        .add_layers = AddLayers,
                        .sizes = Sizes,
                        .bos = -1,
                        .eos = -1};

}  // namespace spillway
