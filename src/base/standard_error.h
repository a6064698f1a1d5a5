// StandardError: how far a mean may be off, as its values differ. Pure function; any thread.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

namespace spillway {

// Of the mean of these values; nullopt of fewer than two.
inline std::optional<double> StandardError(const std::vector<double>& values, double mean) {
  if (values.size() < 2) return std::nullopt;
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1.0) / count);
}

}  // namespace spillway
