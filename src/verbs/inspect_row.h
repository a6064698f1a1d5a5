// InspectRow: a row of what `spillway inspect` prints. Pure function; any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace spillway {

// A line: the name, and what there is to say of it in a column of its own.
inline std::string InspectRow(std::string_view name, std::string_view text) {
  return fmt::format("{:<11} {}\n", name, text);
}

}  // namespace spillway
