// Mixtral (Jiang et al. 2024): Mistral's block with eight experts in the place of each MLP, of
// which two are chosen for a token.
#include <utility>
#include <vector>

#include "src/model/families/expert_keys.h"
#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr ExpertNames kNames = {"block_sparse_moe.", "w1", "w3", "w2"};

ModelShape Read(const JsonNode& config) {
  std::vector<std::string_view> own = ExpertTrainingKeys();
  own.insert(own.end(),
             {"num_experts", "num_experts_per_tok", "num_local_experts", "sliding_window"});
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 131072}, std::move(own));
  shape.norm_epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-5);
  shape.experts = ReadExpertCounts(config, "num_local_experts", shape.num_layers);
  shape.experts.ffn_size = shape.ffn_size;
  const int64_t window = ReadWindow(config, 0);
  const auto num_layers = static_cast<std::size_t>(shape.num_layers);
  SetWindows(config, window, std::vector<bool>(num_layers, window != 0), shape);
  return shape;
}

void AddLayers(const ModelShape& shape, ModelBuilder& model) {
  AddLlamaLayers(shape, {.experts = kNames}, model);
}

std::vector<ModelShape> Sizes() {
  const auto of = [](int64_t vocab_size, int64_t max_positions, const LlamaSize& size) {
    ModelShape shape = LlamaBlock(vocab_size, max_positions, 1e6);
    shape.norm_epsilon = 1e-5;
    shape.experts = {.num = 8, .top_k = 2, .ffn_size = size.ffn_size};
    return WithLlamaSize(shape, size);
  };
  return {of(32000, 32768, {{"mixtral-8x7b", 32, 4096, 32}, 8, 14336}),
          of(32768, 65536, {{"mixtral-8x22b", 56, 6144, 48}, 8, 16384})};
}

}  // namespace

const Family kMixtral = {.model_type = "mixtral",
                         .read = Read,
                         .add_layers = AddLayers,
                         .sizes = Sizes,
                         .bos = 1,
                         .eos = 2};

}  // namespace spillway
