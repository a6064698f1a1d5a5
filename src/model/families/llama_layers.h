// Layers of the models that share Llama's block: RMSNorm, rotary positions, grouped queries, a
// gated MLP. The switches of a shape say what differs. Tensors are named as Hugging Face names
// them.
#pragma once

#include <string_view>

#include "src/model/families/expert_layers.h"  // ExpertNames
#include "src/model/model_builder.h"

namespace spillway {

// Norms of a decoder layer with norms behind its parts, without ".weight".
struct BranchNorms {
  std::string_view after_attention = "post_attention_layernorm";
  std::string_view before_mlp = "pre_feedforward_layernorm";
  std::string_view after_mlp = "post_feedforward_layernorm";
};

// Matrices of a decoder layer's MLP: those that are published are `block` + "gate_proj" and so on,
// and these, of which the first has the rows of gate before those of up.
struct MlpNames {
  std::string_view block = "mlp.";
  std::string_view gate_up = "gate_up_proj";
  std::string_view down = "down_proj";
};

// Names that a family publishes parts of a block under.
struct LlamaNames {
  ExpertNames experts = {};
  BranchNorms norms = {};
  MlpNames mlp = {};
};

void AddLlamaLayers(const ModelShape& shape, const LlamaNames& names, ModelBuilder& model);

// Layers under the usual names.
void AddLlamaLayers(const ModelShape& shape, ModelBuilder& model);

}  // namespace spillway
