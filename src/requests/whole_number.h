// Integers of a line. Plain function; any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace spillway {

// The integer that `value` is, also one that tools for tables wrote as 4.0; nullopt for what has a
// fraction, is over 64 bits (a float: over 2^53, from where on fractions are lost) or no number.
inline std::optional<int64_t> WholeNumber(const nlohmann::json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max())
    return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;
  const double number = value.get<double>();
  if (!(std::abs(number) <= kExact) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace spillway
