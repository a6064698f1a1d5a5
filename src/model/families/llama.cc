// Llama 2 and 3 (Touvron et al. 2023, Grattafiori et al. 2024), and models of the same
// architecture: SmolLM2, Yi, TinyLlama, DeepSeek-R1-Distill-Llama.
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr std::string_view kTextDefaults =
    R"({"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":32000})";

ModelShape Read(const JsonNode& config) {
  RequireSetting(config, "rope_interleaved", false);
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 2048},
                                   {"attention_bias", "mlp_bias", "rope_interleaved"});
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  shape.mlp_bias = config.Boolean("mlp_bias", false);
  return shape;
}

constexpr int64_t kOldPositions = 4096;
constexpr int64_t kNewPositions = 131072;

std::vector<ModelShape> Sizes() {
  ModelShape two = LlamaBlock(32000, kOldPositions, 10000.0);
  two.norm_epsilon = 1e-5;
  ModelShape three = LlamaBlock(128256, kNewPositions, 500000.0);
  three.norm_epsilon = 1e-5;
  three.rope.scaling = {RopeScalingKind::kLlama3, 8.0, 1.0, 4.0, 8192};
  ModelShape small = three;
  small.rope.scaling.factor = 32.0;
  return {WithLlamaSize(two, {{"llama-2-7b", 32, 4096, 32}, 32, 11008}),
          WithLlamaSize(two, {{"llama-2-13b", 40, 5120, 40}, 40, 13824}),
          WithLlamaSize(two, {{"llama-2-70b", 80, 8192, 64}, 8, 28672}),
          WithLlamaSize(three, {{"llama-3.1-8b", 32, 4096, 32}, 8, 14336}),
          WithLlamaSize(three, {{"llama-3.1-70b", 80, 8192, 64}, 8, 28672}),
          WithLlamaSize(small, {{"llama-3.2-1b", 16, 2048, 32}, 8, 8192, true})};
}

}  // namespace

const Family kLlama = {.model_type = "llama",
                       .read = Read,
                       .add_layers = AddLlamaLayers,
                       .sizes = Sizes,
                       .bos = 1,
                       .eos = 2,
                       .text_defaults = kTextDefaults};

}  // namespace spillway
