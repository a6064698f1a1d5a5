// Mistral (Jiang et al. 2023): Llama's block without biases. In version 0.1 every layer has a
// window; Nemo and Small 3 have heads that are together narrower than the hidden states.
#include <vector>

#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr std::string_view kTextDefaults =
    R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000})";

constexpr int64_t kUsualWindow = 4096;  // of a config.json without the key

ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 131072}, {"sliding_window"});
  const int64_t window = ReadWindow(config, kUsualWindow);
  const auto num_layers = static_cast<std::size_t>(shape.num_layers);
  SetWindows(config, window, std::vector<bool>(num_layers, window != 0), shape);
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape seven = LlamaBlock(32768, 32768, 1e6);  // version 0.3
  seven.norm_epsilon = 1e-5;
  ModelShape nemo = LlamaBlock(131072, 131072, 1e6);
  nemo.norm_epsilon = 1e-5;
  ModelShape small = LlamaBlock(131072, 32768, 1e8);
  small.norm_epsilon = 1e-5;
  return {WithLlamaSize(seven, {{"mistral-7b", 32, 4096, 32}, 8, 14336}),
          WithLlamaSize(nemo, {{"mistral-nemo-12b", 40, 5120, 32}, 8, 14336, false, 128}),
          WithLlamaSize(small, {{"mistral-small-24b", 40, 5120, 32}, 8, 32768, false, 128})};
}

}  // namespace

const Family kMistral = {.model_type = "mistral",
                         .read = Read,
                         .add_layers = AddLlamaLayers,
                         .sizes = Sizes,
                         .bos = 1,
                         .eos = 2,
                         .text_defaults = kTextDefaults};

}  // namespace spillway
