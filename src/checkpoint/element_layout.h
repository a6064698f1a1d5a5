// ElementLayout: where a tensor's elements lie in its file, if not one after another in a type that
// we hold: views with strides of their own, and fp64. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace spillway {

// Element number row * cols + col lies row * row_stride + col * col_stride elements behind the
// tensor's first one. Strides may be 0: an element stands for many.
struct ElementLayout {
  int64_t element_bytes = 2;  // in the file
  int64_t cols = 1;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

// Reads bytes of the tensor, counted from its first element.
using ByteReader = std::function<void(int64_t offset, std::span<std::byte> out)>;

// Fills `out` with elements as the file has them, from number `first` on, in reads as long as the
// strides allow. Requires: out is whole elements.
void ReadElements(const ElementLayout& layout, int64_t first, std::span<std::byte> out,
                  const ByteReader& read);

// The fp64 elements of `in` as fp32. False where one is finite and beyond fp32's range.
bool NarrowFp64(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace spillway
