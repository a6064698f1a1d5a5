#include "src/base/size_text.h"

#include <fmt/format.h>

namespace spillway {

std::string SizeText(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes >= int64_t{1} << 30 ? fmt::format("{:.2f} GiB", value / 0x1p30)
                                   : fmt::format("{:.1f} MiB", value / 0x1p20);
}

}  // namespace spillway
