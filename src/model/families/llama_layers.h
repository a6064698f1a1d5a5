// Layers of the models that share Llama's block: RMSNorm, rotary positions, grouped queries, a
// gated MLP. The switches of a shape say what differs. Tensors are named as Hugging Face names
// them.
#pragma once

#include "src/model/model_builder.h"

namespace spillway {

void AddLlamaLayers(const ModelShape& shape, ModelBuilder& model);

}  // namespace spillway
