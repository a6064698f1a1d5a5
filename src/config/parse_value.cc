#include "src/config/parse_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "spillway/error.h"

namespace spillway {
namespace {

[[noreturn]] void Refuse(std::string_view flag, std::string_view text,
                         const std::string& expected) {
  throw Error(ErrorCode::kFlag,
              fmt::format("--{} {}: expected {}", flag, Printable(text), expected));
}

template <typename T>
bool ParseWhole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Bytes of a unit in any case: "KiB", "Ki" and "K" are 1024, as for Slurm, Docker and systemd; "KB"
// is 1000; and so on. 0: there is no such unit.
double UnitBytes(std::string_view suffix) {
  std::string unit(suffix);
  std::ranges::transform(unit, unit.begin(), [](char c) { return c | 0x20; });
  if (unit.empty() || unit == "b") return 1.0;
  const std::size_t power = std::string_view("kmgt").find(unit.front());
  if (power == std::string_view::npos) return 0.0;
  const std::string_view rest = std::string_view(unit).substr(1);
  if (rest == "b") return std::pow(1000.0, static_cast<double>(power + 1));
  const bool binary = rest.empty() || rest == "i" || rest == "ib";
  return binary ? std::pow(1024.0, static_cast<double>(power + 1)) : 0.0;
}

}  // namespace

int64_t ParseInteger(std::string_view flag, std::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  if (!ParseWhole(text, value) || value < min || value > max) {
    Refuse(flag, text, fmt::format("a whole number from {} to {}", min, max));
  }
  return value;
}

double ParseReal(std::string_view flag, std::string_view text, double min, double max) {
  double value = 0.0;
  if (!ParseWhole(text, value) || !std::isfinite(value) || value < min || value > max) {
    Refuse(flag, text, fmt::format("a number from {} to {}", min, max));
  }
  return value;
}

int64_t ParseBytes(std::string_view flag, std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789.+-"), text.size());
  const std::string_view number = text.substr(0, end);
  const double unit_bytes = UnitBytes(text.substr(end));
  double value = 0.0;
  constexpr double kMaxBytes = 1e18;
  if (!ParseWhole(number, value) || !std::isfinite(value) || value < 0 || unit_bytes == 0.0 ||
      value * unit_bytes > kMaxBytes) {
    Refuse(flag, text, "a size such as 16GiB, 16G (the same), 500MB or a number of bytes");
  }
  return static_cast<int64_t>(value * unit_bytes);
}

bool ParseBool(std::string_view flag, std::string_view text) {
  for (const std::string_view yes : {"true", "1", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "0", "no", "off"}) {
    if (text == no) return false;
  }
  Refuse(flag, text, "true or false");
}

}  // namespace spillway
