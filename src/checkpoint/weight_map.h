// WeightMap: which tensor of a checkpoint is which tensor of the model: names and shapes agree,
// nothing is missing. Thread rule: a value; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"

namespace spillway {

// Place of a tensor of the model in a checkpoint.
struct FoundTensor {
  int64_t index = -1;  // in Checkpoint::tensors()
  int64_t first_row = 0;
  int64_t num_rows = 0;  // of the published tensor
  bool transposed = false;
  RowRuns runs = {};
  Stacked stacked = {};

  // The published row of one of ours, and how many rows from it on are neighbours in both.
  int64_t PublishedRow(int64_t row) const;
  int64_t NumTogether(int64_t row) const;
};

struct WeightMap {
  std::vector<std::vector<FoundTensor>> tensors;  // [layer][tensor], as the model has them

  // Tensors of the checkpoint that the model does not use, for a warning.
  std::vector<std::string> surplus;
};

// Index of the tensor `ref` in the checkpoint, under its own name or else in its sources; -1:
// absent. The table that a head is tied to may be there under the head's name alone.
int64_t FindWeight(const Model& model, const Checkpoint& checkpoint, TensorRef ref);

// Finds each tensor as FindWeight does, where all names of the checkpoint may have a prefix
// ("module."). A tied head may be stored a second time. Throws: Error kModelInconsistent: tensors
// missing, of another shape, or a head that is not what it is tied to; kModelUnsupported: a tensor
// that cannot be read; what Checkpoint::Read throws.
WeightMap ResolveWeights(const Model& model, const Checkpoint& checkpoint);

}  // namespace spillway
