// Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024): Llama's block. Published queries, keys and values
// are one matrix, gate and up another one; in the sizes for long contexts a row's length chooses
// its frequencies.
#include <vector>

#include "spillway/error.h"
#include "src/model/families/families.h"
#include "src/model/families/llama_keys.h"
#include "src/model/families/llama_layers.h"

namespace spillway {
namespace {

void RefuseOtherScalings(const JsonNode& config, const RopeScaling& scaling) {
  if (scaling.kind == RopeScalingKind::kNone || scaling.kind == RopeScalingKind::kLong) return;
  config.Refuse(ErrorCode::kModelUnsupported,
                "\"rope_type\" is neither default nor longrope, which are all that phi3 has",
                "choose another model");
}

ModelShape Read(const JsonNode& config) {
  ModelShape shape = ReadLlamaKeys(config, {.max_positions = 4096, .norm_epsilon = 1e-5},
                                   {"embd_pdrop", "resid_pdrop", "sliding_window"});
  RefuseOtherScalings(config, shape.rope.scaling);
  if (const int64_t window = ReadWindow(config, 0); window != 0) {
    const std::vector<bool> all(static_cast<std::size_t>(shape.num_layers), true);
    SetWindows(config, window, all, shape);
  }
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape shape = LlamaBlock(100352, 16384, 250000.0);
  shape.norm_epsilon = 1e-5;
  return {WithLlamaSize(shape, {{"phi-4", 40, 5120, 40}, 10, 17920})};
}

}  // namespace

const Family kPhi3 = {.model_type = "phi3",
                      .read = Read,
                      .add_layers = AddLlamaLayers,
                      .sizes = Sizes,
                      .bos = 1,
                      .eos = 32000,
                      .pad = 32000,
                      .code_class = "Phi3"};

}  // namespace spillway
