// LineFault: why one input line cannot be run, before it is tied to its line number.
#pragma once

#include <optional>
#include <string>

namespace spillway {

struct LineFault {
  std::string code;     // LineError::code
  std::string message;  // without the "line N: "; file-supplied parts are printable and short
};

using MaybeFault = std::optional<LineFault>;  // nullopt: fine

}  // namespace spillway
