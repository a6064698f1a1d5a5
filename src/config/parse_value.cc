#include "src/config/parse_value.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

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
  struct Unit {
    std::string_view suffix;
    double bytes;
  };
  constexpr std::array kUnits = {Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20}, Unit{"GiB", 0x1p30},
                                 Unit{"TiB", 0x1p40}, Unit{"KB", 1e3},     Unit{"MB", 1e6},
                                 Unit{"GB", 1e9},     Unit{"TB", 1e12},    Unit{"B", 1.0}};
  double unit_bytes = 1.0;
  std::string_view number = text;
  for (const Unit& unit : kUnits) {
    if (!number.ends_with(unit.suffix)) continue;
    number.remove_suffix(unit.suffix.size());
    unit_bytes = unit.bytes;
    break;
  }
  double value = 0.0;
  constexpr double kMaxBytes = 1e18;
  if (!ParseWhole(number, value) || !std::isfinite(value) || value < 0 ||
      value * unit_bytes > kMaxBytes) {
    Refuse(flag, text, "a size such as 16GiB, 500MB or a number of bytes");
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
