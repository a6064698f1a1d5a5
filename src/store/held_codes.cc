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
  if (std::ranges::none_of(checkpoint.tensors(), HasCodes)) return {};
  LayerCodes codes;
  bool has_codes = false;
  for (const TensorRef ref : MatricesOfLayers(shape)) {
    const FoundTensor& found =
        map.tensors[static_cast<std::size_t>(ref.layer)][static_cast<std::size_t>(ref.index)];
    const CheckpointTensor& there = checkpoint.tensors()[static_cast<std::size_t>(found.index)];
    has_codes |= HasCodes(there);
    ++codes.num_matrices;
    const bool can_be_held = there.held && !found.transposed;
    codes.held.push_back(can_be_held ? *there.held : shape.dtype);
    if (can_be_held) continue;
    if (++codes.num_decoded == 1) codes.obstacle = ObstacleOf(there, found);
  }
  if (!has_codes) return {};
  if (codes.num_decoded == codes.num_matrices) codes.held.clear();
  const bool is_one =
      std::ranges::adjacent_find(codes.held, std::ranges::not_equal_to()) == codes.held.end();
  if (is_one && !codes.held.empty()) codes.held.erase(codes.held.begin() + 1, codes.held.end());
  return codes;
}

}  // namespace spillway
