// Llama 2 and 3 (Touvron et al. 2023, Grattafiori et al. 2024), and models of the same
// architecture: SmolLM2, Yi, TinyLlama, DeepSeek-R1-Distill-Llama.
#include <array>

#include "src/model/families/families.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

ModelShape Read(const JsonNode& config) {
  RefuseOtherKeys(config,
                  {"attention_bias", "head_dim", "hidden_act", "hidden_size", "intermediate_size",
                   "is_llama_config", "max_position_embeddings", "mlp_bias", "num_attention_heads",
                   "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_interleaved",
                   "rope_parameters", "rope_scaling", "rope_theta", "tie_word_embeddings"});
  RequireSetting(config, "rope_interleaved", false);
  ModelShape shape;
  shape.num_layers = config.Member("num_hidden_layers").Integer(kLayerRange);
  shape.hidden_size = shape.embed_size = config.Member("hidden_size").Integer(kSizeRange);
  shape.ffn_size = config.Member("intermediate_size").Integer(kFfnRange);
  shape.num_heads = config.Member("num_attention_heads").Integer(kHeadRange);
  shape.num_kv_heads = config.Integer("num_key_value_heads", kHeadRange, shape.num_heads);
  shape.head_dim = config.FindSet("head_dim")
                       ? config.Member("head_dim").Integer(kHeadRange)
                       : EvenHeadDim(config, {"hidden_size", "num_attention_heads"}, shape);
  if (shape.num_heads % shape.num_kv_heads != 0) {
    config.Refuse("\"num_attention_heads\" is not a multiple of \"num_key_value_heads\"");
  }
  if (shape.head_dim % 2 != 0) config.Refuse("\"head_dim\" is odd, and its halves are turned");
  shape.vocab_size = config.Member("vocab_size").Integer(kVocabRange);
  shape.max_positions = config.Integer("max_position_embeddings", kPositionRange, 2048);
  shape.activation = ReadActivation(config, "hidden_act", "silu");
  shape.final_norm = shape.pre_norm = true;
  shape.norm = NormKind::kRms;
  shape.norm_epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-6);
  shape.linear_bias = false;
  shape.gated_mlp = true;
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  shape.mlp_bias = config.Boolean("mlp_bias", false);
  shape.tied_head = config.Boolean("tie_word_embeddings", false);
  shape.rope = ReadRope(config, shape.head_dim);
  return shape;
}

// A published size; heads have hidden_size / num_heads elements.
struct LlamaSize {
  NamedSize size;
  int64_t num_kv_heads;
  int64_t ffn_size;
  bool tied_head = false;
};

constexpr int64_t kOldPositions = 4096;
constexpr int64_t kNewPositions = 131072;

ModelShape ShapeOf(ModelShape shape, const LlamaSize& of) {
  shape = WithSize(std::move(shape), of.size);
  shape.num_kv_heads = of.num_kv_heads;
  shape.ffn_size = of.ffn_size;
  shape.tied_head = of.tied_head;
  shape.rope.dims = shape.head_dim;
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape two;
  two.activation = Activation::kSilu;
  two.norm = NormKind::kRms;
  two.linear_bias = false;
  two.gated_mlp = true;
  two.vocab_size = 32000;
  two.max_positions = kOldPositions;
  ModelShape three = two;
  three.vocab_size = 128256;
  three.max_positions = kNewPositions;
  three.rope.theta = 500000.0;
  three.rope.scaling = {RopeScalingKind::kLlama3, 8.0, 1.0, 4.0, 8192};
  ModelShape small = three;
  small.rope.scaling.factor = 32.0;
  return {ShapeOf(two, {{"llama-2-7b", 32, 4096, 32}, 32, 11008}),
          ShapeOf(two, {{"llama-2-13b", 40, 5120, 40}, 40, 13824}),
          ShapeOf(two, {{"llama-2-70b", 80, 8192, 64}, 8, 28672}),
          ShapeOf(three, {{"llama-3.1-8b", 32, 4096, 32}, 8, 14336}),
          ShapeOf(three, {{"llama-3.1-70b", 80, 8192, 64}, 8, 28672}),
          ShapeOf(small, {{"llama-3.2-1b", 16, 2048, 32}, 8, 8192, true})};
}

}  // namespace

const Family kLlama = {.model_type = "llama",
                       .read = Read,
                       .add_layers = AddLlamaLayers,
                       .sizes = Sizes,
                       .bos = 1,
                       .eos = 2};

}  // namespace spillway
