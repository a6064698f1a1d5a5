// Element types by the names of torch's storage classes and dtypes. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "spillway/dtype.h"

namespace spillway {

struct TorchType {
  std::string_view name;                      // "float16"
  std::string_view clazz;                     // "HalfStorage"; empty: has none
  int64_t bytes = 1;                          // of an element
  std::optional<DType> dtype = std::nullopt;  // that it is read as; fp64 as fp32

  bool is_fp64() const { return dtype == DType::kF32 && bytes == 8; }
};

// Null: no type of that name.
const TorchType* FindTorchType(std::string_view name);
const TorchType* FindStorageClass(std::string_view clazz);

// Bytes, of a storage whose type stands with its tensors.
extern const TorchType kUntyped;

}  // namespace spillway
