#include "src/codes/raw_box.h"

#include <span>

#include "kernels/convert/convert.h"

namespace spillway {
namespace {

// Rows one after the other; in one reading where they are whole.
void ReadRaw(const Checkpoint& checkpoint, int64_t index, const ElementBox& box,
             int64_t element_bytes, std::span<std::byte> out) {
  const int64_t cols = ColsOf(checkpoint.tensors()[static_cast<std::size_t>(index)]);
  const auto at = [&](int64_t row) { return (row * cols + box.first_col) * element_bytes; };
  if (box.num_cols == cols) return checkpoint.Read(index, at(box.first_row), out);
  const auto row_bytes = static_cast<std::size_t>(box.num_cols * element_bytes);
  for (int64_t row = 0; row < box.num_rows; ++row) {
    checkpoint.Read(index, at(box.first_row + row), out.first(row_bytes));
    out = out.subspan(row_bytes);
  }
}

template <class T>
std::vector<T> ReadBox(const Checkpoint& checkpoint, int64_t index, const ElementBox& box) {
  std::vector<T> found(static_cast<std::size_t>(box.size()));
  ReadRaw(checkpoint, index, box, sizeof(T), std::as_writable_bytes(std::span(found)));
  return found;
}

}  // namespace

int64_t ColsOf(const CheckpointTensor& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape.back();
}

std::vector<uint32_t> ReadWords(const Checkpoint& checkpoint, int64_t index,
                                const ElementBox& box) {
  return ReadBox<uint32_t>(checkpoint, index, box);
}

std::vector<uint8_t> ReadBytes(const Checkpoint& checkpoint, int64_t index, const ElementBox& box) {
  return ReadBox<uint8_t>(checkpoint, index, box);
}

std::vector<float> ReadFloats(const Checkpoint& checkpoint, int64_t index, const ElementBox& box) {
  const DType dtype = checkpoint.tensors()[static_cast<std::size_t>(index)].dtype;
  if (dtype == DType::kF32) return ReadBox<float>(checkpoint, index, box);
  const std::vector<uint16_t> halfs = ReadBox<uint16_t>(checkpoint, index, box);
  std::vector<float> values(halfs.size());
  kernels::Convert(std::as_bytes(std::span(halfs)), dtype,
                   std::as_writable_bytes(std::span(values)), DType::kF32);
  return values;
}

}  // namespace spillway
