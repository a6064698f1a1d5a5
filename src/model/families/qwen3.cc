// Qwen 3 (Yang et al. 2025), dense: Llama's block with norms of each head's queries and keys, and
// heads of 128 elements whatever the hidden size.
#include <utility>
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"
#include "src/model/families/qwen.h"

namespace spillway {
namespace {

constexpr int64_t kHeadDim = 128;

ModelShape Read(const JsonNode& config) {
  std::vector<std::string_view> own = QwenWindowKeys();
  own.push_back("attention_bias");
  ModelShape shape =
      ReadLlamaKeys(config, {.max_positions = 32768, .head_dim = kHeadDim}, std::move(own));
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", false);
  shape.head_norm = true;
  ReadQwenWindows(config, shape);
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape shape = LlamaBlock(151936, 40960, 1e6);
  shape.head_norm = true;
  return {WithLlamaSize(shape, {{"qwen3-0.6b", 28, 1024, 16}, 8, 3072, true, kHeadDim}),
          WithLlamaSize(shape, {{"qwen3-1.7b", 28, 2048, 16}, 8, 6144, true, kHeadDim}),
          WithLlamaSize(shape, {{"qwen3-4b", 36, 2560, 32}, 8, 9728, true, kHeadDim}),
          WithLlamaSize(shape, {{"qwen3-8b", 36, 4096, 32}, 8, 12288, false, kHeadDim}),
          WithLlamaSize(shape, {{"qwen3-14b", 40, 5120, 40}, 8, 17408, false, kHeadDim}),
          WithLlamaSize(shape, {{"qwen3-32b", 64, 5120, 64}, 8, 25600, false, kHeadDim})};
}

}  // namespace

const Family kQwen3 = {.model_type = "qwen3",
                       .read = Read,
                       .add_layers = AddLlamaLayers,
                       .sizes = Sizes,
                       .bos = -1,
                       .eos = -1,
                       .text_defaults = kQwenTextDefaults};

}  // namespace spillway
