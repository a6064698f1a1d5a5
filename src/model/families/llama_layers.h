// Layers of the models that share Llama's block: RMSNorm, rotary positions, grouped queries, a
// gated MLP. The switches of a shape say what differs. Tensors are named as Hugging Face names
// them.
#pragma once

#include "src/model/families/expert_layers.h"  // ExpertNames
#include "src/model/model_builder.h"

namespace spillway {

void AddLlamaLayers(const ModelShape& shape, ModelBuilder& model);

// Layers of Llama's block where experts have names of their own.
void AddLlamaLayers(const ModelShape& shape, const ExpertNames& experts, ModelBuilder& model);

}  // namespace spillway
