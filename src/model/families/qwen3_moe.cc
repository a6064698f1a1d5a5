// Qwen 3 (Yang et al. 2025) with experts in the place of MLPs.
#include <utility>
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"
#include "src/model/families/qwen.h"

namespace spillway {
namespace {

constexpr int64_t kUsualWindow = 4096;

ModelShape Read(const JsonNode& config) {
  std::vector<std::string_view> own = QwenExpertKeys();
  own.insert(own.end(),
             {"attention_bias", "max_window_layers", "sliding_window", "use_sliding_window"});
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 32768}, std::move(own));
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  shape.head_norm = true;
  ReadQwenExperts(config, shape);
  // Windows are all layers' or none's: max_window_layers is not read, as in transformers.
  const bool used = config.Boolean("use_sliding_window", false);
  const int64_t window = used ? ReadWindow(config, kUsualWindow) : 0;
  const auto num_layers = static_cast<std::size_t>(shape.num_layers);
  SetWindows(config, window, std::vector<bool>(num_layers, window != 0), shape);
  return shape;
}

std::vector<ModelShape> Sizes() {
  const auto of = [](const LlamaSize& size, int64_t expert_ffn) {
    ModelShape shape = LlamaBlock(151936, 40960, 1e6);
    shape.head_norm = true;
    shape.experts = {.num = 128, .top_k = 8, .ffn_size = expert_ffn};
    return WithLlamaSize(shape, size);
  };
  return {of({{"qwen3-30b-a3b", 48, 2048, 32}, 4, 6144, false, 128}, 768),
          of({{"qwen3-235b-a22b", 94, 4096, 64}, 4, 12288, false, 128}, 1536)};
}

}  // namespace

const Family kQwen3Moe = {.model_type = "qwen3_moe",
                          .read = Read,
                          .add_layers = AddLlamaLayers,
                          .sizes = Sizes,
                          .bos = -1,
                          .eos = -1};

}  // namespace spillway
