// EXAONE 4 (LG AI Research 2025): norms behind each part alone, before it is added to the states,
// and of each head's queries and keys. The larger size has a window in three of four layers, and
// the others know no positions then.
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr int64_t kPeriod = 4;

void SetNorms(ModelShape& shape) {
  shape.pre_norm = false;
  shape.branch_norm = shape.head_norm = true;
}

// "layer_types", or each "sliding_window_pattern"th layer without a window.
std::vector<bool> ReadWindowed(const JsonNode& config, int64_t num_layers) {
  std::vector<bool> windowed = ReadLayerTypes(config, num_layers);
  if (!windowed.empty()) return windowed;
  const std::optional<JsonNode> pattern = config.FindSet("sliding_window_pattern");
  if (pattern && pattern->value().is_string())
    config.Refuse("\"sliding_window_pattern\" is a text, and there are no \"layer_types\"");
  return AllButEach(pattern ? pattern->Integer(kLayerRange) : kPeriod, num_layers);
}

ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 2048, .norm_epsilon = 1e-5},
                                   {"layer_types", "sliding_window", "sliding_window_pattern"});
  SetNorms(shape);
  const int64_t window = ReadWindow(config, 4096);
  if (window == 0) return shape;
  std::vector<bool> windowed = ReadWindowed(config, shape.num_layers);
  shape.unturned = windowed;
  shape.unturned.flip();
  SetWindows(config, window, std::move(windowed), shape);
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape shape = LlamaBlock(102400, 131072, 1e6);
  shape.norm_epsilon = 1e-5;
  shape.rope.scaling = {RopeScalingKind::kLlama3, 16.0, 1.0, 4.0, 8192};
  SetNorms(shape);
  ModelShape large = WithLlamaSize(shape, {{"exaone-4.0-32b", 64, 5120, 40}, 8, 27392});
  large.window = 4096;
  large.windowed = large.unturned = AllButEach(kPeriod, large.num_layers);
  large.unturned.flip();
  ModelShape small = shape;
  small.max_positions = 65536;
  small.rope.scaling.factor = 32.0;
  return {WithLlamaSize(small, {{"exaone-4.0-1.2b", 30, 2048, 32}, 8, 4096, true}),
          std::move(large)};
}

}  // namespace

const Family kExaone4 = {.model_type = "exaone4",
                         .read = Read,
                         .add_layers = AddLlamaLayers,
                         .sizes = Sizes,
                         .bos = 0,
                         .eos = 2};

}  // namespace spillway
