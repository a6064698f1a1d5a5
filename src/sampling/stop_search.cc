#include "src/sampling/stop_search.h"

#include <algorithm>

namespace spillway {

std::optional<std::size_t> FindStop(std::string_view text, std::size_t old_bytes,
                                    std::span<const std::string> stops) {
  std::size_t earliest = std::string_view::npos;
  for (const std::string& stop : stops) {
    // The first place at which the stop string would end in the new bytes.
    const std::size_t from = old_bytes + 1 > stop.size() ? old_bytes + 1 - stop.size() : 0;
    earliest = std::min(earliest, text.find(stop, from));
  }
  return earliest == std::string_view::npos ? std::nullopt : std::optional(earliest);
}

}  // namespace spillway
