// HeldCodes: which of the codes that a checkpoint publishes its layers' matrices in can be held as
// they are. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"

namespace spillway {

struct LayerCodes {
  std::vector<DType> held;  // ModelShape::layer_codes
  // The first matrix of a decoder layer whose codes cannot be held, or that has none where others
  // do, and why; empty: the checkpoint has no codes, or all are held.
  std::string obstacle = {};
  int64_t num_decoded = 0;  // such matrices
  int64_t num_matrices = 0;
};

// `map`: of the shape's model, whose types make no difference to it.
LayerCodes FindLayerCodes(const ModelShape& shape, const Checkpoint& checkpoint,
                          const WeightMap& map);

}  // namespace spillway
