// Which tensor of a checkpoint is which tensor of the model: names and shapes agree, nothing is
// missing. Thread rule: a value; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"

namespace spillway {

struct WeightMap {
  // indices[i][j]: the index in Checkpoint::tensors() of layers[i].tensors[j].
  std::vector<std::vector<int64_t>> indices;

  // Tensors of the checkpoint that the model does not use, for a warning.
  std::vector<std::string> surplus;
};

// Knows the names that older converters gave, and that a tied head may be stored a second time.
// Throws: Error kModelInconsistent: tensors missing, of another shape, or a head that is not what
// it is tied to; what Checkpoint::Read throws.
WeightMap ResolveWeights(const std::vector<LayerSpec>& layers, const Checkpoint& checkpoint);

}  // namespace spillway
