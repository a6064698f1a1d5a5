// GLM-4 (GLM Team 2024): Llama's block in which neighbours turn together, half of a head, with few
// KV heads; gate and up are one matrix. The releases of 2025 have norms behind attention and MLP.
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr double kEpsilon = 1.5625e-7;
constexpr double kPart = 0.5;  // of a head turns
constexpr BranchNorms kNorms = {"post_self_attn_layernorm", "post_attention_layernorm",
                                "post_mlp_layernorm"};

ModelShape ReadGlm(const JsonNode& config) {
  ModelShape shape = ReadLlamaKeys(config,
                                   {.max_positions = 131072,
                                    .head_dim = 128,
                                    .own_rope = true,
                                    .norm_epsilon = kEpsilon,
                                    .num_kv_heads = 2},
                                   {"attention_bias"});
  Rope rope = ReadRope(config, shape.head_dim, {.usual_part = kPart});
  rope.pairs = RopePairs::kNeighbours;
  SetRope(rope, shape);
  shape.qkv_bias = config.Boolean("attention_bias", true);
  return shape;
}

ModelShape ReadGlm4(const JsonNode& config) {
  ModelShape shape = ReadGlm(config);
  shape.branch_norm = true;
  return shape;
}

void AddGlm4Layers(const ModelShape& shape, ModelBuilder& model) {
  AddLlamaLayers(shape, {.norms = kNorms}, model);
}

struct Variant {
  double theta = 10000.0;
  bool branch_norm = true;
  bool qkv_bias = false;
};

ModelShape SizeOf(const LlamaSize& of, int64_t max_positions, const Variant& variant) {
  ModelShape shape = WithLlamaSize(LlamaBlock(151552, max_positions, variant.theta), of);
  shape.norm_epsilon = 1e-5;
  shape.rope.pairs = RopePairs::kNeighbours;
  shape.rope.dims = shape.head_dim / 2;
  shape.branch_norm = variant.branch_norm;
  shape.qkv_bias = variant.qkv_bias;
  return shape;
}

std::vector<ModelShape> SizesOfGlm() {
  ModelShape shape = SizeOf({{"glm-4-9b", 40, 4096, 32}, 2, 13696, false, 128}, 131072,
                            {.branch_norm = false, .qkv_bias = true});
  shape.norm_epsilon = kEpsilon;
  return {std::move(shape)};
}

std::vector<ModelShape> SizesOfGlm4() {
  return {SizeOf({{"glm-4-9b-0414", 40, 4096, 32}, 2, 13696, false, 128}, 32768, {}),
          SizeOf({{"glm-4-32b-0414", 61, 6144, 48}, 8, 23040, false, 128}, 32768, {})};
}

}  // namespace

const Family kGlm = {.model_type = "glm",
                     .read = ReadGlm,
                     .add_layers = AddLlamaLayers,
                     .sizes = SizesOfGlm,
                     .eos = 151329,
                     .pad = 151329};

const Family kGlm4 = {.model_type = "glm4",
                      .read = ReadGlm4,
                      .add_layers = AddGlm4Layers,
                      .sizes = SizesOfGlm4,
                      .eos = 151329,
                      .pad = 151329};

}  // namespace spillway
