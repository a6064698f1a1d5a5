// Seed-OSS (ByteDance Seed 2025): Llama's block with biases of queries, keys and values.
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

ModelShape Read(const JsonNode& config) {
  ModelShape shape =
      ReadLlamaKeys(config, {.max_positions = 524288, .head_dim = 128, .num_kv_heads = 8},
                    {"attention_bias", "attention_out_bias", "mlp_bias", "residual_dropout"});
  shape.qkv_bias = config.Boolean("attention_bias", true);
  shape.out_bias = config.Boolean("attention_out_bias", false);
  shape.mlp_bias = config.Boolean("mlp_bias", false);
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape shape = LlamaBlock(155136, 524288, 1e7);
  shape.qkv_bias = true;
  return {WithLlamaSize(shape, {{"seed-oss-36b", 64, 5120, 80}, 8, 27648, false, 128})};
}

}  // namespace

const Family kSeedOss = {.model_type = "seed_oss",
                         .read = Read,
                         .add_layers = AddLlamaLayers,
                         .sizes = Sizes,
                         .bos = 0,
                         .eos = 2,
                         .pad = 1};

}  // namespace spillway
