// HeldCodes: whether the codes that a checkpoint publishes its layers' matrices in can be held as
// they are. Pure functions; any thread.
#pragma once

#include <optional>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"

namespace spillway {

// Type of ModelShape::layer_codes: every matrix of the decoder layers, those that choose experts
// apart, is published in codes of one type that can be held as they are; nullopt: they are not.
// Throws: what ResolveWeights throws.
std::optional<DType> HeldLayerCodes(const ModelShape& shape, const Checkpoint& checkpoint);

}  // namespace spillway
