// Granite 3 (IBM 2024), dense: Llama's block with factors for embeddings, scores, what is added to
// the states, and logits.
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

struct Factors {
  double embedding = 1.0;
  double residual = 1.0;
  double attention = 1.0;
  double logits = 1.0;  // the logits are divided by it
};

// The factor of what each part adds to the states becomes one of the embeddings: states divided by
// it have the same norms, if these have its square in their epsilon.
void SetFactors(const Factors& factors, ModelShape& shape) {
  shape.embed_scale = factors.embedding / factors.residual;
  shape.norm_epsilon /= factors.residual * factors.residual;
  shape.score_scale = factors.attention;
  shape.logit_scale = 1.0 / factors.logits;
}

double ReadFactor(const JsonNode& config, std::string_view key) {
  constexpr double kLeast = 1e-2;
  constexpr double kMost = 1e3;
  const std::optional<JsonNode> found = config.FindSet(key);
  return found ? found->Number(kLeast, kMost) : 1.0;
}

ModelShape Read(const JsonNode& config) {
  ModelShape shape =
      ReadLlamaKeys(config, {.max_positions = 2048},
                    {"attention_bias", "mlp_bias", "embedding_multiplier", "logits_scaling",
                     "residual_multiplier", "attention_multiplier"});
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  shape.mlp_bias = config.Boolean("mlp_bias", false);
  const std::optional<JsonNode> attention = config.FindSet("attention_multiplier");
  SetFactors({ReadFactor(config, "embedding_multiplier"), ReadFactor(config, "residual_multiplier"),
              attention ? attention->Number(1e-6, 1e3) : 1.0, ReadFactor(config, "logits_scaling")},
             shape);
  if (shape.norm_epsilon > 1.0)
    config.Refuse("\"rms_norm_eps\" over the square of \"residual_multiplier\" is above 1");
  return shape;
}

ModelShape SizeOf(const LlamaSize& of, double attention, double logits) {
  ModelShape shape = LlamaBlock(49159, 131072, 1e7);
  shape.norm_epsilon = 1e-5;
  SetFactors({12.0, 0.22, attention, logits}, shape);
  return WithLlamaSize(shape, of);
}

std::vector<ModelShape> Sizes() {
  return {SizeOf({{"granite-3.3-2b", 40, 2048, 32}, 8, 8192, true}, 0.015625, 8.0),
          SizeOf({{"granite-3.3-8b", 40, 4096, 32}, 8, 12800, true}, 0.0078125, 16.0)};
}

}  // namespace

const Family kGranite = {.model_type = "granite",
                         .read = Read,
                         .add_layers = AddLlamaLayers,
                         .sizes = Sizes,
                         .bos = 1,
                         .eos = 2};

}  // namespace spillway
