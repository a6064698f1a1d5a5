// The tensors of OPT (Zhang et al. 2022), as Hugging Face names them. Pure values; any thread.
#pragma once

#include <vector>

#include "spillway/model.h"

namespace spillway {

// All layers of an OPT model in execution order.
// Requires: shape.family == "opt" and a shape that ReadModelShape or BuiltInShape made.
std::vector<LayerSpec> OptLayers(const ModelShape& shape);

}  // namespace spillway
