// HeldCodes: whether the codes that a checkpoint publishes its layers' matrices in can be held as
// they are. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"

namespace spillway {

struct LayerCodes {
  // Type of ModelShape::layer_codes: every matrix of the decoder layers, those that choose experts
  // apart, is published in codes of one type that can be held as they are; nullopt: they are not.
  std::optional<DType> held;
  // A tensor whose codes cannot be held, or that has none where others do, and why; empty: the
  // checkpoint has no codes, or all are held.
  std::string obstacle = {};
};

// `map`: of the shape's model, whose types make no difference to it.
LayerCodes FindLayerCodes(const ModelShape& shape, const Checkpoint& checkpoint,
                          const WeightMap& map);

}  // namespace spillway
