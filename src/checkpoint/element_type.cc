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

std::string UnreadType(std::string_view source, std::string_view tensor, std::string_view type) {
  return fmt::format(
      "{}: tensor \"{}\" has the element type {}, supported are fp16, bf16, fp32 and fp64; convert "
      "the model",
      Printable(source), Printable(tensor, 60), Printable(type, 20));
}

std::optional<int64_t> CheckedBytes(std::span<const int64_t> shape, int64_t element_bytes) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  if (__builtin_mul_overflow(product, element_bytes, &product)) return std::nullopt;
  return product;
}

}  // namespace spillway
