// PublishedTensor: reads a tensor of the model where a checkpoint has it as a part of another one,
// or transposed. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"

namespace spillway {

// Rows and columns of a tensor of the model.
struct ElementBox {
  int64_t first_row;
  int64_t num_rows;
  int64_t first_col;
  int64_t num_cols;

  int64_t size() const { return num_rows * num_cols; }
};

// The longest part of `count` elements from number `first` on, of a matrix of so many columns, that
// is whole rows, or lies within one.
ElementBox FirstBox(int64_t first, int64_t count, int64_t cols);

// Fills `out` with elements of our tensor from `first_element` on, row by row, in the checkpoint's
// type. `cols`: of our tensor. Requires: out is whole elements, and the tensor has so many.
// Throws: what Checkpoint::Read throws.
void ReadPublished(const Checkpoint& checkpoint, const FoundTensor& found, int64_t cols,
                   int64_t first_element, std::span<std::byte> out);

}  // namespace spillway
