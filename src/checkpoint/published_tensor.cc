#include "src/checkpoint/published_tensor.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace spillway {
namespace {

// Columns are read with what lies between the box's rows, which is as much again where two
// matrices have rows in turns: reading element by element would take a thousand times as long.
bool ReadsColumns(const FoundTensor& found, int64_t cols) { return found.transposed || cols == 1; }

// FirstBox, of rows that are neighbours in the published tensor too, unless columns are read.
ElementBox FirstPublishedBox(const FoundTensor& found, int64_t cols, int64_t first_element,
                             int64_t count) {
  ElementBox box = FirstBox(first_element, count, cols);
  if (!ReadsColumns(found, cols))
    box.num_rows = std::min(box.num_rows, found.NumTogether(box.first_row));
  return box;
}

// The first element of a published tensor, in the stack that it may be a part of.
int64_t FirstOf(const FoundTensor& found, int64_t cols) {
  return found.stacked.index * found.num_rows * cols;
}

// Rows of the box are a run of the published matrix.
void ReadRows(const Checkpoint& checkpoint, const FoundTensor& found, const ElementBox& box,
              int64_t cols, std::span<std::byte> out) {
  const CheckpointTensor& tensor = checkpoint.tensors()[static_cast<std::size_t>(found.index)];
  const int64_t from =
      FirstOf(found, cols) + found.PublishedRow(box.first_row) * cols + box.first_col;
  checkpoint.Read(found.index, from * DTypeBytes(tensor.dtype), out);
}

// A column of the box lies in a run of the published matrix.
void ReadTransposed(const Checkpoint& checkpoint, const FoundTensor& found, const ElementBox& box,
                    int64_t cols, std::span<std::byte> out) {
  const CheckpointTensor& tensor = checkpoint.tensors()[static_cast<std::size_t>(found.index)];
  const int64_t bytes = DTypeBytes(tensor.dtype);
  const int64_t first = found.PublishedRow(box.first_row);
  const int64_t count = found.PublishedRow(box.first_row + box.num_rows - 1) + 1 - first;
  std::vector<std::byte> column(static_cast<std::size_t>(count * bytes));
  for (int64_t col = 0; col < box.num_cols; ++col) {
    const int64_t from = FirstOf(found, cols) + (box.first_col + col) * found.num_rows + first;
    checkpoint.Read(found.index, from * bytes, column);
    for (int64_t row = 0; row < box.num_rows; ++row) {
      const int64_t at = found.PublishedRow(box.first_row + row) - first;
      std::memcpy(out.data() + (row * box.num_cols + col) * bytes, column.data() + at * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }
}

}  // namespace

ElementBox FirstBox(int64_t first, int64_t count, int64_t cols) {
  const int64_t row = first / cols;
  const int64_t col = first % cols;
  if (col == 0 && count >= cols) return {row, count / cols, 0, cols};
  return {row, 1, col, std::min(count, cols - col)};
}

void ReadPublished(const Checkpoint& checkpoint, const FoundTensor& found, int64_t cols,
                   int64_t first_element, std::span<std::byte> out) {
  const CheckpointTensor& tensor = checkpoint.tensors()[static_cast<std::size_t>(found.index)];
  const int64_t bytes = DTypeBytes(tensor.dtype);
  if (!found.transposed && found.runs.rows == 0) {
    const int64_t from = FirstOf(found, cols) + found.first_row * cols + first_element;
    return checkpoint.Read(found.index, from * bytes, out);
  }
  while (!out.empty()) {
    const auto count = static_cast<int64_t>(out.size()) / bytes;
    const ElementBox box = FirstPublishedBox(found, cols, first_element, count);
    const std::span<std::byte> part = out.first(static_cast<std::size_t>(box.size() * bytes));
    if (ReadsColumns(found, cols)) {
      ReadTransposed(checkpoint, found, box, cols, part);
    } else {
      ReadRows(checkpoint, found, box, cols, part);
    }
    out = out.subspan(part.size());
    first_element += box.size();
  }
}

}  // namespace spillway
