// Gemma 3 (Gemma Team 2025), text: as Gemma 2 without soft caps, with norms of each head's queries
// and keys, a window in five of six layers, and other rotary positions there.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "src/model/families/families.h"
#include "src/model/families/gemma.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr std::string_view kTextDefaults =
    R"({"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,"vocab_size":262208})";

constexpr double kTheta = 1e6;
constexpr double kWindowTheta = 1e4;
constexpr int64_t kPeriod = 6;  // of layers without a window

ModelShape Read(const JsonNode& config) {
  ModelShape shape =
      ReadGemmaKeys(config,
                    {.max_positions = 131072,
                     .head_dim = 256,
                     .own_rope = true,
                     .activation_key = "hidden_activation"},
                    {"_sliding_window_pattern", "final_logit_softcapping", "hidden_act",
                     "layer_types", "query_pre_attn_scalar", "rope_local_base_freq",
                     "sliding_window", "sliding_window_pattern"});
  ReadGemmaParts(config, shape);
  ReadRopesOfTypes(config, {kTheta, "rope_local_base_freq", kWindowTheta}, shape);
  shape.head_norm = true;
  shape.logit_cap = ReadSoftCap(config, "final_logit_softcapping", 0.0);
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  if (windowed.empty()) {
    windowed = AllButEach(config.Integer("sliding_window_pattern", kLayerRange, kPeriod),
                          shape.num_layers);
  }
  SetWindows(config, ReadWindow(config, 4096), std::move(windowed), shape);
  return shape;
}

// Differences beyond the sizes of the block.
struct Variant {
  int64_t vocab_size = 262208;
  int64_t max_positions = 131072;
  int64_t window = 1024;
  double scalar = 256.0;
  double factor = 8.0;
};

ModelShape SizeOf(const LlamaSize& of, const Variant& variant) {
  ModelShape shape =
      WithGemmaSize(GemmaBlock(variant.vocab_size, variant.max_positions, kTheta), of);
  shape.branch_norm = shape.head_norm = true;
  shape.score_scale = 1.0 / std::sqrt(variant.scalar);
  shape.window = variant.window;
  shape.windowed = AllButEach(kPeriod, shape.num_layers);
  shape.window_rope = shape.rope;
  shape.window_rope->theta = kWindowTheta;
  if (variant.factor != 1.0) {
    shape.rope.scaling = {RopeScalingKind::kLinear, variant.factor};
  }
  return shape;
}

std::vector<ModelShape> Sizes() {
  const Variant small = {
      .vocab_size = 262144, .max_positions = 32768, .window = 512, .factor = 1.0};
  return {SizeOf({{"gemma-3-1b", 26, 1152, 4}, 1, 6912, true, 256}, small),
          SizeOf({{"gemma-3-4b", 34, 2560, 8}, 4, 10240, true, 256}, {}),
          SizeOf({{"gemma-3-12b", 48, 3840, 16}, 8, 15360, true, 256}, {}),
          SizeOf({{"gemma-3-27b", 62, 5376, 32}, 16, 21504, true, 128}, {.scalar = 168.0})};
}

}  // namespace

const Family kGemma3 = {.model_type = "gemma3_text",
                        .read = Read,
                        .add_layers = AddLlamaLayers,
                        .sizes = Sizes,
                        .bos = 2,
                        .eos = 1,
                        .pad = 0,
                        .text_defaults = kTextDefaults};

}  // namespace spillway
