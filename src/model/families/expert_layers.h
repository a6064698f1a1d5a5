// Layers of experts, in the place of a decoder layer's MLP: the router's, then some for the
// experts. Plain functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/model/model_builder.h"

namespace spillway {

// Forms of the stacks of all experts' matrices that a checkpoint may have in place of one for each.
// Of either a GGUF file has a stack of each matrix ("gate_proj.weight", "gate_proj.bias").
//   kConcatenated: rows of gate before those of up, in gate_up_proj; without biases.
//   kInterleaved: rows of gate and up in turns, matrices transposed unless they are codes
//     ("gate_up_proj_blocks"), with biases ("gate_up_proj_bias").
enum class ExpertStacks { kConcatenated, kInterleaved };

// Names that a family publishes experts under, without the decoder layer's: those of one expert
// E are `block` + "experts.E." + gate + ".weight".
struct ExpertNames {
  std::string_view block = "mlp.";
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view router = "gate";
  ExpertStacks stacks = ExpertStacks::kConcatenated;
  std::string_view gate_up_stack = "mlp.experts.gate_up_proj";
  std::string_view down_stack = "mlp.experts.down_proj";
};

// Adds the layers of a decoder layer whose names begin with `layer`. `norm`: of the experts' input.
// Requires: HasExperts(shape, decoder_layer).
void AddExpertLayers(const ModelShape& shape, int64_t decoder_layer, const std::string& layer,
                     const ExpertNames& names, Norm norm, ModelBuilder& model);

}  // namespace spillway
