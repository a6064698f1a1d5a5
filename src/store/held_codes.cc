#include "src/store/held_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

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

// Codes of the only matrix of a layer; nullopt where there are none or several matrices.
std::optional<DType> CodesOfOnly(const Model& model, std::size_t layer,
                                 const Checkpoint& checkpoint, const WeightMap& map) {
  std::optional<DType> codes;
  int64_t num_matrices = 0;
  const std::vector<TensorSpec>& tensors = model.layers[layer].tensors;
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    if (tensors[at].cols == 1) continue;
    const FoundTensor& found = map.tensors[layer][at];
    if (!found.transposed) codes = checkpoint.tensors()[static_cast<std::size_t>(found.index)].held;
    ++num_matrices;
  }
  return num_matrices == 1 ? codes : std::nullopt;
}

PublishedCodes CodesOfLayers(const ModelShape& shape, const Checkpoint& checkpoint,
                             const WeightMap& map) {
  PublishedCodes codes;
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

}  // namespace

PublishedCodes FindPublishedCodes(const ModelShape& shape, const Checkpoint& checkpoint,
                                  const WeightMap& map) {
  if (std::ranges::none_of(checkpoint.tensors(), HasCodes)) return {};
  PublishedCodes codes = CodesOfLayers(shape, checkpoint, map);
  const Model model = MakeModel(shape);
  codes.embedding = CodesOfOnly(model, 0, checkpoint, map);
  codes.head = CodesOfOnly(model, model.layers.size() - 1, checkpoint, map);
  return codes;
}

void HoldCodes(PublishedCodes codes, ModelShape& shape) {
  shape.layer_codes = std::move(codes.held);
  shape.embedding_codes = codes.embedding;
  shape.head_codes = codes.head;
}

}  // namespace spillway
