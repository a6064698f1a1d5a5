// Files of a checkpoint in memory, and what one that was opened must be able to do.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/descriptor.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_file.h"

namespace spillway::fuzz {

// An open file of these bytes.
inline ModelFile FileOf(std::string_view bytes, const std::string& name) {
  Descriptor file(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!file.valid()) throw std::system_error(errno, std::generic_category(), "memfd_create");
  WriteAll(file, bytes, name);
  return ModelFile(std::move(file), name);
}

// Reads the first and the last row of a tensor of codes as groups hold them.
inline void ReadHeldEnds(const Checkpoint& checkpoint, int64_t index) {
  const CheckpointTensor& tensor = checkpoint.tensors()[static_cast<std::size_t>(index)];
  const int64_t cols = tensor.shape.back();
  const int64_t num_rows = tensor.bytes / DTypeBytes(tensor.dtype) / cols;
  std::vector<std::byte> row(static_cast<std::size_t>(RowBytes(*tensor.held, cols)));
  checkpoint.ReadRows(index, 0, row);
  checkpoint.ReadRows(index, num_rows - 1, row);
}

// Reads the first and the last element of every tensor.
inline void ReadEnds(const Checkpoint& checkpoint) {
  std::array<std::byte, sizeof(float)> bytes{};
  for (std::size_t index = 0; index < checkpoint.tensors().size(); ++index) {
    const CheckpointTensor& tensor = checkpoint.tensors()[index];
    if (tensor.bytes == 0 || IsQuantised(tensor.dtype)) continue;
    const int64_t element = DTypeBytes(tensor.dtype);
    const auto one = std::span(bytes).first(static_cast<std::size_t>(element));
    checkpoint.Read(static_cast<int64_t>(index), 0, one);
    checkpoint.Read(static_cast<int64_t>(index), tensor.bytes - element, one);
    if (tensor.held) ReadHeldEnds(checkpoint, static_cast<int64_t>(index));
  }
}

}  // namespace spillway::fuzz
