// SmolLM3 (Hugging Face 2025): Llama's block, in which every fourth layer knows no positions.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "spillway/error.h"
#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr int64_t kPeriod = 4;

std::vector<bool> EachOf(int64_t period, int64_t num_layers) {
  std::vector<bool> each = AllButEach(period, num_layers);
  each.flip();
  return each;
}

// "no_rope_layers" has 1 for a layer with positions and may go on behind the last.
std::vector<bool> ReadUnturned(const JsonNode& config, int64_t num_layers) {
  const std::optional<JsonNode> listed = config.FindSet("no_rope_layers");
  if (!listed)
    return EachOf(config.Integer("no_rope_layer_interval", kLayerRange, kPeriod), num_layers);
  std::vector<bool> unturned;
  for (const JsonNode& item : listed->Items()) unturned.push_back(item.Integer({0, 1}) == 0);
  if (std::ssize(unturned) < num_layers)
    config.Refuse(fmt::format("\"no_rope_layers\" has {} entries for {} layers", unturned.size(),
                              num_layers));
  unturned.resize(static_cast<std::size_t>(num_layers));
  return unturned;
}

// Layers without positions have the window, unless "layer_types" says otherwise.
void ReadWindows(const JsonNode& config, ModelShape& shape) {
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  const int64_t window = ReadWindow(config, 0);
  if (!config.Boolean("use_sliding_window", false)) {
    // transformers masks such layers or not, as its kernel of attention has it.
    if (window > 0 && std::ranges::find(windowed, true) != windowed.end())
      config.Refuse(ErrorCode::kModelUnsupported,
                    "\"layer_types\" has sliding layers, and \"use_sliding_window\" is not true",
                    "set \"sliding_window\" to null, or \"use_sliding_window\" to true");
    return;
  }
  if (windowed.empty() && window > 0) windowed = shape.unturned;
  SetWindows(config, window, std::move(windowed), shape);
}

// transformers reads no "max_window_layers" in this family, and published files have it.
ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadLlamaKeys(
      config, {.max_positions = 32768, .tied_head = true, .theta = 2e6, .num_kv_heads = 4},
      {"attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval", "layer_types",
       "use_sliding_window", "sliding_window", "max_window_layers"});
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  shape.mlp_bias = config.Boolean("mlp_bias", false);
  shape.unturned = ReadUnturned(config, shape.num_layers);
  ReadWindows(config, shape);
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape shape =
      WithLlamaSize(LlamaBlock(128256, 65536, 5e6), {{"smollm3-3b", 36, 2048, 16}, 4, 11008, true});
  shape.unturned = EachOf(kPeriod, shape.num_layers);
  return {std::move(shape)};
}

}  // namespace

const Family kSmolLm3 = {.model_type = "smollm3",
                         .read = Read,
                         .add_layers = AddLlamaLayers,
                         .sizes = Sizes,
                         .bos = 128000,
                         .eos = 128001,
                         .pad = 128004};

}  // namespace spillway
