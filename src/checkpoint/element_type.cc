#include "src/checkpoint/element_type.h"

#include <fmt/format.h>

#include "spillway/error.h"

namespace spillway {

std::optional<DType> DTypeOfSafetensors(std::string_view name) {
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  if (name == "F32") return DType::kF32;
  return std::nullopt;
}

std::optional<DType> DTypeOfNumpy(std::string_view descriptor) {
  if (descriptor == "<f2") return DType::kF16;
  if (descriptor == "<f4") return DType::kF32;
  return std::nullopt;
}

void ThrowUnsupportedDType(std::string_view source, std::string_view tensor,
                           std::string_view dtype) {
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("{}: tensor \"{}\" has the element type {}, supported are fp16, bf16 and "
                          "fp32; convert the "
                          "model",
                          Printable(source), Printable(tensor, 60), Printable(dtype, 20)));
}

std::optional<int64_t> CheckedBytes(std::span<const int64_t> shape, DType dtype) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  if (__builtin_mul_overflow(product, DTypeBytes(dtype), &product)) return std::nullopt;
  return product;
}

}  // namespace spillway
