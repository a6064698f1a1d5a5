#include "src/store/held_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

std::string ObstacleOf(const CheckpointTensor& tensor, const FoundTensor& found) {
  std::string_view why = "is of another type than others";
  if (tensor.coded.empty()) why = "has no codes";
  if (found.transposed) why = "is transposed";
  if (!tensor.why_decoded.empty()) why = tensor.why_decoded;
  return fmt::format("\"{}\" {}", Printable(tensor.name), why);
}

// The first matrix that the model would hold in `dtype` and the checkpoint does not have in it;
// empty: there is none.
std::string FindObstacle(const Model& model, const Checkpoint& checkpoint, const WeightMap& map,
                         DType dtype) {
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const std::vector<TensorSpec>& specs = model.layers[layer].tensors;
    for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
      if (specs[tensor].dtype != dtype) continue;
      const FoundTensor& found = map.tensors[layer][tensor];
      const CheckpointTensor& there = checkpoint.tensors()[static_cast<std::size_t>(found.index)];
      if (found.transposed || there.held != dtype) return ObstacleOf(there, found);
    }
  }
  return "";
}

}  // namespace

LayerCodes FindLayerCodes(const ModelShape& shape, const Checkpoint& checkpoint,
                          const WeightMap& map) {
  const auto& tensors = checkpoint.tensors();
  const auto any = std::ranges::find_if(tensors, [](const CheckpointTensor& tensor) {
    return tensor.held.has_value() || !tensor.why_decoded.empty();
  });
  if (any == tensors.end()) return {};
  if (!any->held) return {std::nullopt, ObstacleOf(*any, {})};
  ModelShape with_codes = shape;
  with_codes.weight_bits = 16;
  with_codes.layer_codes = any->held;
  std::string obstacle =
      FindObstacle(MakeModel(std::move(with_codes)), checkpoint, map, *any->held);
  if (obstacle.empty()) return {any->held};
  return {std::nullopt, std::move(obstacle)};
}

}  // namespace spillway
