// Seeded random weights of a given model, made when they are read: --dummy-weights.
#pragma once

#include <cstdint>
#include <memory>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"

namespace spillway {

// A checkpoint with every tensor of the model, in the types that are held in memory. Any range
// of bytes can be read by any thread, and the bytes do not depend on how they are cut. Matrices are
// uniform with a standard deviation of 1 / sqrt(cols), embeddings and biases of 0.02, norm weights
// are 1 and norm biases 0: activations stay in the range of fp16 for any depth that fits a machine.
std::unique_ptr<Checkpoint> MakeDummyCheckpoint(const Model& model, uint64_t seed);

}  // namespace spillway
