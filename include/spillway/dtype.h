// Element types as they are stored. Arithmetic is always fp32 (design.md section 5).
#pragma once

#include <cstdint>
#include <string_view>

namespace spillway {

enum class DType { kF32, kF16, kBF16 };

constexpr int64_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
  }
  return "unknown";
}

}  // namespace spillway
