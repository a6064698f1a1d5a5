// HeldCodes: which of the codes that a checkpoint publishes its matrices in can be held as they
// are. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"

namespace spillway {

struct PublishedCodes {
  std::vector<DType> held;  // ModelShape::layer_codes
  std::optional<DType> embedding;
  std::optional<DType> head;
  // The first matrix of a decoder layer whose codes cannot be held, or that has none where others
  // do, and why; empty: the checkpoint has no codes, or all are held.
  std::string obstacle = {};
  int64_t num_decoded = 0;  // such matrices
  int64_t num_matrices = 0;

  bool none() const { return held.empty() && !embedding && !head; }
};

// `map`: of the shape's model, whose types make no difference to it.
PublishedCodes FindPublishedCodes(const ModelShape& shape, const Checkpoint& checkpoint,
                                  const WeightMap& map);

// Has the matrices in these codes.
void HoldCodes(PublishedCodes codes, ModelShape& shape);

}  // namespace spillway
