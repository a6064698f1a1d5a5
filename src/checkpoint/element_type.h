// Element types under the names that containers give them, and checked sizes. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "spillway/dtype.h"

namespace spillway {

// "F16", "BF16", "F32"; nullopt for every other name.
std::optional<DType> DTypeOfSafetensors(std::string_view name);

// "<f2", "<f4"; nullopt for every other descriptor. numpy has no bf16.
std::optional<DType> DTypeOfNumpy(std::string_view descriptor);

// Throws: Error kModelUnsupported, listing what is supported.
[[noreturn]] void ThrowUnsupportedDType(std::string_view source, std::string_view tensor,
                                        std::string_view dtype);

// Bytes of a tensor; nullopt when a dimension is negative or the product leaves 63 bits.
std::optional<int64_t> CheckedBytes(std::span<const int64_t> shape, DType dtype);

}  // namespace spillway
