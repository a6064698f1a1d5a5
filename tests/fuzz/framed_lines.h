// Lines with checksums that are right, so that a parser of journals gets behind them.
#pragma once

#include <string>
#include <string_view>

#include "src/answers/framed_line.h"

namespace spillway::fuzz {

inline std::string FramedLines(std::string_view lines) {
  std::string framed;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    framed += FramedLine(lines.substr(0, end));
    lines = end == std::string_view::npos ? std::string_view() : lines.substr(end + 1);
  }
  return framed;
}

}  // namespace spillway::fuzz
