#include "src/store/held_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "spillway/error.h"

namespace spillway {
namespace {

bool HasCodes(const CheckpointTensor& tensor) {
  return tensor.held.has_value() || !tensor.why_decoded.empty();
}

std::string ObstacleOf(const CheckpointTensor& tensor, const FoundTensor& found) {
  std::string_view why = "has no codes";
  if (!tensor.why_decoded.empty()) why = tensor.why_decoded;
  if (found.transposed) why = "is transposed";
  return fmt::format("\"{}\" {}", Printable(tensor.name), why);
}

}  // namespace

LayerCodes FindLayerCodes(const ModelShape& shape, const Checkpoint& checkpoint,
                          const WeightMap& map) {
  const auto& tensors = checkpoint.tensors();
  if (std::ranges::none_of(tensors, HasCodes)) return {};
  LayerCodes codes;
  for (const TensorRef ref : MatricesOfLayers(shape)) {
    const FoundTensor& found =
        map.tensors[static_cast<std::size_t>(ref.layer)][static_cast<std::size_t>(ref.index)];
    const CheckpointTensor& there = tensors[static_cast<std::size_t>(found.index)];
    const bool can_be_held = there.held && !found.transposed;
    codes.held.push_back(can_be_held ? *there.held : shape.dtype);
    if (!can_be_held && codes.obstacle.empty()) codes.obstacle = ObstacleOf(there, found);
  }
  if (std::ranges::all_of(codes.held, [&](DType dtype) { return dtype == shape.dtype; }))
    return {{}, codes.obstacle};
  if (std::ranges::adjacent_find(codes.held, std::ranges::not_equal_to()) == codes.held.end())
    codes.held.resize(1);
  return codes;
}

}  // namespace spillway
