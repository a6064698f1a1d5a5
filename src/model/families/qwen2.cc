// Qwen 2 and 2.5 (Yang et al. 2024): Llama's block with biases on queries, keys and values. Where
// windows are used, the layers from max_window_layers on have them.
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"
#include "src/model/families/qwen.h"

namespace spillway {
namespace {

ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 32768}, QwenWindowKeys());
  shape.qkv_bias = true;  // by the architecture: config.json has no key for it
  ReadQwenWindows(config, shape);
  return shape;
}

std::vector<ModelShape> Sizes() {
  const auto block = [](int64_t vocab_size, double epsilon) {
    ModelShape shape = LlamaBlock(vocab_size, 32768, 1e6);
    shape.qkv_bias = true;
    shape.norm_epsilon = epsilon;
    return shape;
  };
  const ModelShape small = block(151936, 1e-6);
  const ModelShape large = block(152064, 1e-6);
  const ModelShape coarse = block(152064, 1e-5);
  return {WithLlamaSize(small, {{"qwen2.5-0.5b", 24, 896, 14}, 2, 4864, true}),
          WithLlamaSize(small, {{"qwen2.5-1.5b", 28, 1536, 12}, 2, 8960, true}),
          WithLlamaSize(small, {{"qwen2.5-3b", 36, 2048, 16}, 2, 11008, true}),
          WithLlamaSize(large, {{"qwen2.5-7b", 28, 3584, 28}, 4, 18944}),
          WithLlamaSize(coarse, {{"qwen2.5-14b", 48, 5120, 40}, 8, 13824}),
          WithLlamaSize(coarse, {{"qwen2.5-32b", 64, 5120, 40}, 8, 27648}),
          WithLlamaSize(coarse, {{"qwen2.5-72b", 80, 8192, 64}, 8, 29568})};
}

}  // namespace

const Family kQwen2 = {.model_type = "qwen2",
                       .read = Read,
                       .add_layers = AddLlamaLayers,
                       .sizes = Sizes,
                       .bos = -1,
                       .eos = -1,
                       .text_defaults = kQwenTextDefaults};

}  // namespace spillway
