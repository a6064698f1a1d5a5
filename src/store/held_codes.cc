#include "src/store/held_codes.h"

#include <algorithm>
#include <utility>

#include "src/checkpoint/weight_map.h"

namespace spillway {
namespace {

// True where the model holds each matrix in `dtype` that has it in the checkpoint too.
bool AreAllCoded(const Model& model, const Checkpoint& checkpoint, DType dtype) {
  const WeightMap map = ResolveWeights(model, checkpoint);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const std::vector<TensorSpec>& specs = model.layers[layer].tensors;
    for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
      if (specs[tensor].dtype != dtype) continue;
      const FoundTensor& found = map.tensors[layer][tensor];
      const auto index = static_cast<std::size_t>(found.index);
      if (found.transposed || checkpoint.tensors()[index].held != dtype) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<DType> HeldLayerCodes(const ModelShape& shape, const Checkpoint& checkpoint) {
  const auto any = std::ranges::find_if(
      checkpoint.tensors(), [](const CheckpointTensor& tensor) { return tensor.held.has_value(); });
  if (any == checkpoint.tensors().end()) return std::nullopt;
  ModelShape with_codes = shape;
  with_codes.weight_bits = 16;
  with_codes.layer_codes = any->held;
  const Model model = MakeModel(std::move(with_codes));
  return AreAllCoded(model, checkpoint, *any->held) ? any->held : std::nullopt;
}

}  // namespace spillway
