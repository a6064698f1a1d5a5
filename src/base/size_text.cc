#include "src/base/size_text.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace spillway {

std::string SizeText(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes >= int64_t{1} << 30 ? fmt::format("{:.2f} GiB", value / 0x1p30)
                                   : fmt::format("{:.1f} MiB", value / 0x1p20);
}

std::string ExactSizeText(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.1f} {} ({} bytes)", value, kUnits[unit], bytes);
}

}  // namespace spillway
