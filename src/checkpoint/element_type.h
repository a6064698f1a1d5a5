// Element types under the names that containers give them, and checked sizes. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spillway/dtype.h"

namespace spillway {

// "F16", "BF16", "F32"; nullopt for every other name.
std::optional<DType> DTypeOfSafetensors(std::string_view name);

// "<f2", "<f4"; nullopt for every other descriptor. numpy has no bf16.
std::optional<DType> DTypeOfNumpy(std::string_view descriptor);

// Message about a tensor of a type that is not read, with those that are.
std::string UnreadType(std::string_view source, std::string_view tensor, std::string_view type);

// Bytes of a tensor whose elements have so many each; nullopt when a dimension is negative or the
// product leaves 63 bits.
std::optional<int64_t> CheckedBytes(std::span<const int64_t> shape, int64_t element_bytes);

}  // namespace spillway
