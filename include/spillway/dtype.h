// Element types as they are stored, and how long rows of them are. Arithmetic is always fp32
// (docs/design.md, "Numbers").
#pragma once

#include <cstdint>
#include <string_view>

#include "spillway/round.h"

namespace spillway {

// kQ8 and kQ4: groups of 64 along a matrix row, each with its own minimum and step. kMxfp4: numbers
// of 4 bits, as published, with a power of two for each 32; see kernels/convert/quantise.h. Of
// matrices only.
enum class DType { kF32, kF16, kBF16, kQ8, kQ4, kMxfp4 };

constexpr bool IsQuantised(DType dtype) {
  return dtype == DType::kQ8 || dtype == DType::kQ4 || dtype == DType::kMxfp4;
}

// A group of quantised weights: its minimum and step, or two scales, 2 bytes each, then the codes.
// The last group of a row is stored whole.
inline constexpr int64_t kGroupWeights = 64;
inline constexpr int64_t kGroupHeadBytes = 4;
constexpr int64_t GroupBytes(DType dtype) {
  return kGroupHeadBytes + (dtype == DType::kQ8 ? kGroupWeights : kGroupWeights / 2);
}

// Bytes of one element. Requires: !IsQuantised(dtype), whose elements have no bytes of their own.
constexpr int64_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// Bytes of a matrix row: the one place that knows how long rows are.
constexpr int64_t RowBytes(DType dtype, int64_t cols) {
  return IsQuantised(dtype) ? DivideUp(cols, kGroupWeights) * GroupBytes(dtype)
                            : cols * DTypeBytes(dtype);
}

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    case DType::kQ8:
      return "q8";
    case DType::kQ4:
      return "q4";
    case DType::kMxfp4:
      return "mxfp4";
  }
  return "unknown";
}

}  // namespace spillway
