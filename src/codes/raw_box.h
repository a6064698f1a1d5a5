// RawBox: a rectangle of a checkpoint's tensor of two dimensions, read for what decodes it. Plain
// functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/published_tensor.h"  // ElementBox

namespace spillway {

// Columns of the tensor: its last dimension; 1 for a scalar.
int64_t ColsOf(const CheckpointTensor& tensor);

// Words of a tensor of int32. Throws (all below): what Checkpoint::Read throws.
std::vector<uint32_t> ReadWords(const Checkpoint& checkpoint, int64_t index, const ElementBox& box);

// Bytes of a tensor of one-byte elements.
std::vector<uint8_t> ReadBytes(const Checkpoint& checkpoint, int64_t index, const ElementBox& box);

// Values of a tensor of floating-point numbers.
std::vector<float> ReadFloats(const Checkpoint& checkpoint, int64_t index, const ElementBox& box);

}  // namespace spillway
