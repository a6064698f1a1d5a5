// Gemma 2 (Gemma Team 2024): norms before and behind each part, soft caps of scores and logits, a
// window in every other layer, from the first on.
#include <cmath>
#include <utility>

#include "src/model/families/families.h"
#include "src/model/families/gemma.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

constexpr double kScoreCap = 50.0;
constexpr double kLogitCap = 30.0;
constexpr int64_t kWindow = 4096;
constexpr int64_t kPeriod = 2;  // of layers without a window

ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadGemmaKeys(
      config, {.max_positions = 8192, .head_dim = 256, .activation_key = "hidden_activation"},
      {"attn_logit_softcapping", "final_logit_softcapping", "hidden_act", "layer_types",
       "query_pre_attn_scalar", "sliding_window", "sliding_window_size"});
  ReadGemmaParts(config, shape);
  shape.score_cap = ReadSoftCap(config, "attn_logit_softcapping", kScoreCap);
  shape.logit_cap = ReadSoftCap(config, "final_logit_softcapping", kLogitCap);
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  if (windowed.empty()) windowed = AllButEach(kPeriod, shape.num_layers);
  SetWindows(config, ReadWindow(config, kWindow), std::move(windowed), shape);
  return shape;
}

ModelShape SizeOf(const LlamaSize& of, double scalar) {
  ModelShape shape = WithGemmaSize(GemmaBlock(256000, 8192, 10000.0), of);
  shape.branch_norm = true;
  shape.score_scale = 1.0 / std::sqrt(scalar);
  shape.score_cap = kScoreCap;
  shape.logit_cap = kLogitCap;
  shape.window = kWindow;
  shape.windowed = AllButEach(kPeriod, shape.num_layers);
  return shape;
}

std::vector<ModelShape> Sizes() {
  return {SizeOf({{"gemma-2-2b", 26, 2304, 8}, 4, 9216, true, 256}, 256.0),
          SizeOf({{"gemma-2-9b", 42, 3584, 16}, 8, 14336, true, 256}, 256.0),
          SizeOf({{"gemma-2-27b", 46, 4608, 32}, 16, 36864, true, 128}, 144.0)};
}

}  // namespace

const Family kGemma2 = {.model_type = "gemma2",
                        .read = Read,
                        .add_layers = AddLlamaLayers,
                        .sizes = Sizes,
                        .bos = 2,
                        .eos = 1,
                        .pad = 0};

}  // namespace spillway
