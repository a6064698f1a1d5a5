// OLMo 2 (OLMo Team 2024) and 3: Llama's block with norms behind each part alone, before it is
// added to the states, and of all queries and all keys together. OLMo 3 has a window in three of
// four layers, whose positions are not scaled.
#include <vector>

#include "spillway/error.h"
#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr double kTheta = 500000.0;
constexpr int64_t kPeriod = 4;  // of OLMo 3's layers without a window

void SetNorms(ModelShape& shape) {
  shape.pre_norm = false;
  shape.branch_norm = shape.joint_head_norm = true;
}

ModelShape ReadKeys(const JsonNode& config, const LlamaDefaults& defaults,
                    std::vector<std::string_view> own) {
  own.push_back("attention_bias");
  ModelShape shape = ReadLlamaKeys(config, defaults, std::move(own));
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  SetNorms(shape);
  return shape;
}

ModelShape ReadTwo(const JsonNode& config) {
  return ReadKeys(config, {.max_positions = 2048, .norm_epsilon = 1e-5}, {});
}

// transformers 5 takes a "rope_theta" outside "rope_parameters" for the full layers alone, where
// earlier versions took it for all.
void RefuseLostTheta(const JsonNode& config, const ModelShape& shape) {
  if (!config.FindSet("rope_theta") || shape.rope.theta == kTheta) return;
  if (const std::optional<JsonNode> parameters = config.FindSet("rope_parameters")) {
    const std::optional<JsonNode> windowed = parameters->FindSet("sliding_attention");
    if (windowed && windowed->FindSet("rope_theta")) return;
  }
  config.Refuse(ErrorCode::kModelUnsupported,
                "\"rope_theta\" is not 500000, and versions of transformers differ in which layers "
                "have it",
                "give each type of layers its own in \"rope_parameters\"");
}

ModelShape ReadThree(const JsonNode& config) {
  ModelShape shape =
      ReadKeys(config, {.max_positions = 2048, .own_rope = true, .norm_epsilon = 1e-5},
               {"layer_types", "sliding_window"});
  ReadRopesOfTypes(config, {kTheta, "rope_theta", kTheta}, shape);
  RefuseLostTheta(config, shape);
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  if (windowed.empty()) windowed = AllButEach(kPeriod, shape.num_layers);
  SetWindows(config, ReadWindow(config, 4096), std::move(windowed), shape);
  return shape;
}

std::vector<ModelShape> SizesOfTwo() {
  ModelShape shape = LlamaBlock(100352, 4096, kTheta);
  SetNorms(shape);
  return {WithLlamaSize(shape, {{"olmo-2-1b", 16, 2048, 16}, 16, 8192}),
          WithLlamaSize(shape, {{"olmo-2-7b", 32, 4096, 32}, 32, 11008}),
          WithLlamaSize(shape, {{"olmo-2-13b", 40, 5120, 40}, 40, 13824}),
          WithLlamaSize(shape, {{"olmo-2-32b", 64, 5120, 40}, 8, 27648})};
}

ModelShape SizeOfThree(const LlamaSize& of) {
  ModelShape shape = LlamaBlock(100278, 65536, kTheta);
  SetNorms(shape);
  shape = WithLlamaSize(shape, of);
  shape.window = 4096;
  shape.windowed = AllButEach(kPeriod, shape.num_layers);
  shape.window_rope = shape.rope;
  RopeScaling& scaling = shape.rope.scaling;
  scaling.kind = RopeScalingKind::kYarn;
  scaling.factor = 8.0;
  scaling.original_positions = 8192;
  scaling.attention_factor = 1.2079441541679836;
  return shape;
}

std::vector<ModelShape> SizesOfThree() {
  return {SizeOfThree({{"olmo-3-7b", 32, 4096, 32}, 32, 11008}),
          SizeOfThree({{"olmo-3-32b", 64, 5120, 40}, 8, 27648})};
}

}  // namespace

const Family kOlmo2 = {.model_type = "olmo2",
                       .read = ReadTwo,
                       .add_layers = AddLlamaLayers,
                       .sizes = SizesOfTwo,
                       .eos = 50279,
                       .pad = 1};

const Family kOlmo3 = {.model_type = "olmo3",
                       .read = ReadThree,
                       .add_layers = AddLlamaLayers,
                       .sizes = SizesOfThree,
                       .eos = 50279,
                       .pad = 1};

}  // namespace spillway
