// Qwen 2 (Yang et al. 2024) with experts in the place of MLPs: some that are chosen for a token,
// and a wider one that all tokens have, through a gate.
#include <utility>
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"
#include "src/model/families/qwen.h"

namespace spillway {
namespace {

constexpr int64_t kUsualWindow = 4096;
constexpr int64_t kUsualWindowLayers = 28;

// Where "layer_types" does not say it, every other one of the first max_window_layers layers.
void ReadWindows(const JsonNode& config, ModelShape& shape) {
  const bool used = config.Boolean("use_sliding_window", false);
  const int64_t window = used ? ReadWindow(config, kUsualWindow) : 0;
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  if (windowed.empty()) {
    const int64_t first =
        config.Integer("max_window_layers", {0, kLayerRange.high}, kUsualWindowLayers);
    for (int64_t layer = 0; layer < shape.num_layers; ++layer)
      windowed.push_back(window != 0 && layer % 2 == 0 && layer < first);
  }
  SetWindows(config, window, std::move(windowed), shape);
}

ModelShape Read(const JsonNode& config) {
  std::vector<std::string_view> own = QwenExpertKeys();
  const std::vector<std::string_view> windows = QwenWindowKeys();
  own.insert(own.end(), windows.begin(), windows.end());
  own.insert(own.end(), {"qkv_bias", "shared_expert_intermediate_size"});
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 32768}, std::move(own));
  shape.qkv_bias = config.Boolean("qkv_bias", true);
  ReadQwenExperts(config, shape);
  shape.experts.shared_ffn = config.Member("shared_expert_intermediate_size").Integer(kFfnRange);
  ReadWindows(config, shape);
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape shape = LlamaBlock(151936, 8192, 1e6);
  shape.qkv_bias = true;
  shape.experts = {
      .num = 60, .top_k = 4, .ffn_size = 1408, .shared_ffn = 5632, .renormalise = false};
  return {WithLlamaSize(shape, {{"qwen1.5-moe-a2.7b", 24, 2048, 16}, 16, 5632})};
}

}  // namespace

const Family kQwen2Moe = {.model_type = "qwen2_moe",
                          .read = Read,
                          .add_layers = AddLlamaLayers,
                          .sizes = Sizes,
                          .bos = -1,
                          .eos = -1};

}  // namespace spillway
