// Granite 3 and 4 (IBM 2024, 2025): Llama's block with factors for embeddings, scores, what is
// added to the states, and logits. Some of Granite 3 have experts; of Granite 4, whose other models
// have layers of Mamba, those that attend in all layers are read.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/model/families/expert_keys.h"
#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr ExpertNames kExpertNames = {.block = "block_sparse_moe.",
                                      .router = "router.layer",
                                      .gate_up_stack = "block_sparse_moe.input_linear.weight",
                                      .down_stack = "block_sparse_moe.output_linear.weight"};
constexpr MlpNames kMlpNames = {"shared_mlp.", "input_linear", "output_linear"};

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

ModelShape ReadKeys(const JsonNode& config, std::vector<std::string_view> own) {
  own.insert(own.end(), {"attention_bias", "embedding_multiplier", "logits_scaling",
                         "residual_multiplier", "attention_multiplier"});
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 2048}, std::move(own));
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  const std::optional<JsonNode> attention = config.FindSet("attention_multiplier");
  SetFactors({ReadFactor(config, "embedding_multiplier"), ReadFactor(config, "residual_multiplier"),
              attention ? attention->Number(1e-6, 1e3) : 1.0, ReadFactor(config, "logits_scaling")},
             shape);
  if (shape.norm_epsilon > 1.0)
    config.Refuse("\"rms_norm_eps\" over the square of \"residual_multiplier\" is above 1");
  return shape;
}

ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadKeys(config, {"mlp_bias"});
  shape.mlp_bias = config.Boolean("mlp_bias", false);
  return shape;
}

ModelShape ReadExperts(const JsonNode& config) {
  std::vector<std::string_view> own = ExpertTrainingKeys();
  own.insert(own.end(), {"num_experts_per_tok", "num_local_experts"});
  ModelShape shape = ReadKeys(config, std::move(own));
  shape.experts = ReadExpertCounts(config, "num_local_experts", shape.num_layers);
  shape.experts.ffn_size = shape.ffn_size;
  return shape;
}

// Parts that Granite 4 has in other models than those that are read.
void RefuseOtherParts(const JsonNode& config, int64_t num_layers) {
  const auto refuse = [&](const std::string& what) {
    config.Refuse(ErrorCode::kModelUnsupported, what,
                  "choose one of Granite 4 without Mamba and experts, or another model");
  };
  if (config.Integer("num_local_experts", {0, kExpertRange.high}, 8) != 0)
    refuse("\"num_local_experts\" is not 0, and experts beside a shared MLP are not read");
  if (config.Text("normalization_function", "rmsnorm") != "rmsnorm")
    refuse("\"normalization_function\" is not \"rmsnorm\"");
  const std::optional<JsonNode> types = config.FindSet("layer_types");
  if (!types)
    refuse("has no \"layer_types\", and its layers are then of Mamba, which are not read");
  int64_t num_types = 0;
  for (const JsonNode& item : types->Items()) {
    const std::string type = item.Text();
    if (type != "attention" && type != "full_attention")
      refuse(fmt::format("\"layer_types\" has \"{}\", and attention alone is read",
                         Printable(type, 40)));
    ++num_types;
  }
  if (num_types != num_layers)
    config.Refuse(
        fmt::format("\"layer_types\" has {} entries for {} layers", num_types, num_layers));
}

// Whether the layers know positions: of another name than "rope", or none, they do not.
bool HasPositions(const JsonNode& config) {
  const std::string type = config.Text("position_embedding_type", "nope");
  if (type == "rope" || type == "nope") return type == "rope";
  config.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"position_embedding_type\" is \"{}\", supported are rope and nope",
                            Printable(type, 40)),
                "choose another model");
}

ModelShape ReadHybrid(const JsonNode& config) {
  std::vector<std::string_view> own = ExpertTrainingKeys();
  own.insert(own.end(), {"num_experts_per_tok", "num_local_experts", "shared_intermediate_size",
                         "layer_types", "position_embedding_type", "normalization_function",
                         "init_method", "time_step_limit", "mamba_chunk_size", "mamba_conv_bias",
                         "mamba_d_conv", "mamba_d_head", "mamba_d_state", "mamba_expand",
                         "mamba_n_groups", "mamba_n_heads", "mamba_proj_bias"});
  ModelShape shape = ReadKeys(config, std::move(own));
  RefuseOtherParts(config, shape.num_layers);
  shape.ffn_size = config.Integer("shared_intermediate_size", kFfnRange, 1024);
  if (!HasPositions(config))
    shape.unturned = std::vector<bool>(static_cast<std::size_t>(shape.num_layers), true);
  return shape;
}

void AddExpertLayers(const ModelShape& shape, ModelBuilder& model) {
  AddLlamaLayers(shape, {.experts = kExpertNames}, model);
}

void AddHybridLayers(const ModelShape& shape, ModelBuilder& model) {
  AddLlamaLayers(shape, {.mlp = kMlpNames}, model);
}

struct Published {
  int64_t vocab_size;
  double attention;
  double logits;
};

ModelShape SizeOf(const LlamaSize& of, const Published& published) {
  ModelShape shape = LlamaBlock(published.vocab_size, 131072, 1e7);
  shape.norm_epsilon = 1e-5;
  SetFactors({12.0, 0.22, published.attention, published.logits}, shape);
  return WithLlamaSize(shape, of);
}

std::vector<ModelShape> Sizes() {
  return {SizeOf({{"granite-3.3-2b", 40, 2048, 32}, 8, 8192, true}, {49159, 0.015625, 8.0}),
          SizeOf({{"granite-3.3-8b", 40, 4096, 32}, 8, 12800, true}, {49159, 0.0078125, 16.0})};
}

std::vector<ModelShape> SizesWithExperts() {
  const auto of = [](int64_t num_experts, const LlamaSize& size) {
    ModelShape shape = SizeOf(size, {49155, 0.015625, 6.0});
    shape.experts = {.num = num_experts, .top_k = 8, .ffn_size = size.ffn_size};
    return shape;
  };
  return {of(32, {{"granite-3.1-1b-a400m", 24, 1024, 16}, 8, 512, true}),
          of(40, {{"granite-3.1-3b-a800m", 32, 1536, 24}, 8, 512, true})};
}

std::vector<ModelShape> SizesOfFour() {
  return {SizeOf({{"granite-4.0-micro", 40, 2560, 40}, 8, 8192, true}, {100352, 0.015625, 10.0})};
}

}  // namespace

const Family kGranite = {.model_type = "granite",
                         .read = Read,
                         .add_layers = AddLlamaLayers,
                         .sizes = Sizes,
                         .bos = 1,
                         .eos = 2};

const Family kGraniteMoe = {.model_type = "granitemoe",
                            .read = ReadExperts,
                            .add_layers = AddExpertLayers,
                            .sizes = SizesWithExperts,
                            .bos = 1,
                            .eos = 2};

const Family kGraniteMoeHybrid = {.model_type = "granitemoehybrid",
                                  .read = ReadHybrid,
                                  .add_layers = AddHybridLayers,
                                  .sizes = SizesOfFour,
                                  .bos = 1,
                                  .eos = 2};

}  // namespace spillway
