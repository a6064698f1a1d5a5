// Element types as they are stored, and how long rows of them are. Arithmetic is always fp32
// (docs/design.md, "Numbers").
#pragma once

#include <cstdint>
#include <string_view>

#include "spillway/round.h"

namespace spillway {

// Of matrices only, in groups of 64 along a row (kernels/convert/quantise.h). kQ8 and kQ4: codes of
// 8 and 4 bits, with a minimum and a step for each group. The others hold what checkpoints publish:
// kMxfp4 numbers of 4 bits with a power of two for each 32, kInt8 and kInt4 integers from a zero
// point times a scale, kFp8 numbers of 8 bits (e4m3) times a scale, and five hold the types of GGUF
// files: kGgufQ8 and kGgufQ4 with a scale for each 32 (Q8_0, Q5_0; Q4_0), kGgufM4 with a minimum as
// well (Q4_1), kGgufK4 and kGgufK6 with scales and minimums that are coded themselves (Q4_K; Q6_K,
// Q5_K, Q3_K, Q2_K).
enum class DType {
  kF32,
  kF16,
  kBF16,
  kQ8,
  kQ4,
  kMxfp4,
  kInt8,
  kInt4,
  kFp8,
  kGgufQ8,
  kGgufQ4,
  kGgufM4,
  kGgufK4,
  kGgufK6
};

constexpr bool IsQuantised(DType dtype) { return dtype >= DType::kQ8; }

// Bits of a code of a quantised type.
constexpr int CodeBits(DType dtype) {
  switch (dtype) {
    case DType::kQ8:
    case DType::kInt8:
    case DType::kFp8:
    case DType::kGgufQ8:
      return 8;
    case DType::kGgufK6:
      return 6;
    default:
      return 4;
  }
}

// A group of quantised weights: a head, then the codes.
// The last group of a row is stored whole.
inline constexpr int64_t kGroupWeights = 64;
constexpr int64_t GroupHeadBytes(DType dtype) {
  if (dtype == DType::kGgufK6) return 12;
  return dtype == DType::kGgufK4 || dtype == DType::kGgufM4 ? 8 : 4;
}
constexpr int64_t GroupBytes(DType dtype) {
  return GroupHeadBytes(dtype) + kGroupWeights * CodeBits(dtype) / 8;
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
    case DType::kInt8:
      return "int8";
    case DType::kInt4:
      return "int4";
    case DType::kFp8:
      return "fp8";
    case DType::kGgufQ8:
      return "q8_0";
    case DType::kGgufQ4:
      return "q4_0";
    case DType::kGgufM4:
      return "q4_1";
    case DType::kGgufK4:
      return "q4_k";
    case DType::kGgufK6:
      return "q6_k";
  }
  return "unknown";
}

}  // namespace spillway
