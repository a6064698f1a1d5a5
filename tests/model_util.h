// Questions that tests ask of models.
#pragma once

#include <string_view>
#include <vector>

#include "spillway/model.h"

namespace spillway {

inline std::vector<LayerSpec> LayersOf(const ModelShape& shape) { return MakeModel(shape).layers; }

// Null when the layer has none of that name.
inline const TensorSpec* FindTensor(const LayerSpec& layer, std::string_view name) {
  for (const TensorSpec& tensor : layer.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace spillway
