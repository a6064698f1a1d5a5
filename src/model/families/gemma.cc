// Gemma (Gemma Team 2024).
#include "src/model/families/gemma.h"

#include <cmath>
#include <string>

#include "spillway/error.h"
#include "src/model/families/families.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr int kBf16Bits = 8;
constexpr int kF16Bits = 11;
constexpr int kF32Bits = 24;

// sqrt(hidden_size) in a type with so many bits, the type of the checkpoint: transformers rounds
// it.
double EmbedScale(int64_t hidden_size, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(std::sqrt(static_cast<double>(hidden_size)), &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

int BitsOfType(const JsonNode& config) {
  const std::string type = NamedType(config);
  return type == "bfloat16" ? kBf16Bits : type == "float32" ? kF32Bits : kF16Bits;
}

// "gelu" was written where the tanh form is meant.
Activation TanhForm(Activation activation) {
  return activation == Activation::kGelu ? Activation::kGeluTanh : activation;
}

ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadGemmaKeys(
      config, {.max_positions = 8192, .head_dim = 256, .activation_key = "hidden_act"},
      {"hidden_activation"});
  shape.activation = TanhForm(shape.activation);
  if (config.FindSet("hidden_activation") &&
      TanhForm(ReadActivation(config, "hidden_activation", "")) != shape.activation) {
    config.Refuse("\"hidden_activation\" is not \"hidden_act\"");
  }
  return shape;
}

std::vector<ModelShape> Sizes() {
  const ModelShape shape = GemmaBlock(256000, 8192, 10000.0);
  return {WithGemmaSize(shape, {{"gemma-2b", 18, 2048, 8}, 1, 16384, true, 256}),
          WithGemmaSize(shape, {{"gemma-7b", 28, 3072, 16}, 16, 24576, true, 256})};
}

}  // namespace

ModelShape ReadGemmaKeys(const JsonNode& config, const LlamaDefaults& defaults,
                         std::vector<std::string_view> own) {
  RequireSetting(config, "use_bidirectional_attention", false);
  LlamaDefaults gemma = defaults;
  gemma.tied_head = true;
  gemma.activation = "gelu_pytorch_tanh";
  own.insert(own.end(), {"attention_bias", "cache_implementation"});
  ModelShape shape = ReadLlamaKeys(config, gemma, std::move(own));
  shape.norm_offset = 1.0;
  shape.embed_scale = EmbedScale(shape.hidden_size, BitsOfType(config));
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  return shape;
}

void ReadGemmaParts(const JsonNode& config, ModelShape& shape) {
  const std::optional<JsonNode> scalar = config.FindSet("query_pre_attn_scalar");
  shape.score_scale = 1.0 / std::sqrt(scalar ? scalar->Number(1e-6, 1e9) : 256.0);
  shape.branch_norm = true;
}

double ReadSoftCap(const JsonNode& config, std::string_view key, double fallback) {
  const auto found = config.value().find(key);
  if (found == config.value().end()) return fallback;
  return found->is_null() ? 0.0 : config.Member(key).Number(1e-3, 1e6);
}

ModelShape WithGemmaSize(const ModelShape& shape, const LlamaSize& of) {
  ModelShape sized = WithLlamaSize(shape, of);
  sized.embed_scale = EmbedScale(sized.hidden_size, kBf16Bits);
  return sized;
}

ModelShape GemmaBlock(int64_t vocab_size, int64_t max_positions, double theta) {
  ModelShape shape = LlamaBlock(vocab_size, max_positions, theta);
  shape.activation = Activation::kGeluTanh;
  shape.norm_offset = 1.0;
  return shape;
}

const Family kGemma = {.model_type = "gemma",
                       .read = Read,
                       .add_layers = AddLlamaLayers,
                       .sizes = Sizes,
                       .bos = 2,
                       .eos = 1,
                       .pad = 0};

}  // namespace spillway
