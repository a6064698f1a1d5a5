// HeldCodes: whether the codes that a checkpoint publishes its layers' matrices in can be held as
// they are. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"

namespace spillway {

struct LayerCodes {
  // Type of ModelShape::layer_codes: every matrix of the decoder layers, those that choose experts
  // apart, is published in codes of one type that can be held as they are; nullopt: they are not.
  std::optional<DType> held;
  // A tensor whose codes cannot be held, or that has none where others do, and why; empty: the
  // checkpoint has no codes, or all are held.
  std::string obstacle = {};
};

// Throws: what ResolveWeights throws.
LayerCodes FindLayerCodes(const ModelShape& shape, const Checkpoint& checkpoint);

}  // namespace spillway
