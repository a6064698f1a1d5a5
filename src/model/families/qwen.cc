#include "src/model/families/qwen.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/model/families/expert_keys.h"
#include "src/model/families/llama_keys.h"

namespace spillway {

std::vector<std::string_view> QwenExpertKeys() {
  std::vector<std::string_view> keys = ExpertTrainingKeys();
  keys.insert(keys.end(),
              {"decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size", "norm_topk_prob",
               "num_experts", "num_experts_per_tok", "num_local_experts"});
  return keys;
}

// A layer has experts where its number, from 1, is a multiple of decoder_sparse_step, unless it is
// among mlp_only_layers.
void ReadQwenExperts(const JsonNode& config, ModelShape& shape) {
  shape.experts = ReadExpertCounts(config, "num_experts", shape.num_layers);
  shape.experts.ffn_size = config.Member("moe_intermediate_size").Integer(kFfnRange);
  shape.experts.renormalise = config.Boolean("norm_topk_prob", false);
  const int64_t step = config.Integer("decoder_sparse_step", kLayerRange, 1);
  std::vector<bool> dense;
  for (int64_t layer = 1; layer <= shape.num_layers; ++layer) dense.push_back(layer % step != 0);
  if (const std::optional<JsonNode> only = config.FindSet("mlp_only_layers")) {
    for (const JsonNode& layer : only->Items())
      dense[static_cast<std::size_t>(layer.Integer({0, shape.num_layers - 1}))] = true;
  }
  if (std::ranges::find(dense, true) != dense.end()) shape.experts.dense = std::move(dense);
}

std::vector<std::string_view> QwenWindowKeys() {
  return {"layer_types", "max_window_layers", "sliding_window", "use_sliding_window"};
}

void ReadQwenWindows(const JsonNode& config, ModelShape& shape) {
  constexpr int64_t kUsualWindow = 4096;
  constexpr int64_t kUsualFirstLayer = 28;
  const bool used = config.Boolean("use_sliding_window", false);
  const int64_t window = used ? ReadWindow(config, kUsualWindow) : 0;
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  if (windowed.empty()) {
    const int64_t first =
        config.Integer("max_window_layers", {0, kLayerRange.high}, kUsualFirstLayer);
    for (int64_t layer = 0; layer < shape.num_layers; ++layer)
      windowed.push_back(window != 0 && layer >= first);
  }
  SetWindows(config, window, std::move(windowed), shape);
}

}  // namespace spillway
