// One line as strict JSON. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "src/requests/line_fault.h"

namespace spillway {

// The line's value. Deeper than 64 levels, more than 262,144 values, a key given twice, a number
// that no double holds, a byte 0: faults "too_deep", "too_many_values", "duplicate_key",
// "invalid_json", "nul_byte". Any character may stand in a string, \u0000 too. Syntax errors name
// their column, in bytes. No recursion, so that the line's depth costs no stack.
// Requires: valid UTF-8.
std::variant<nlohmann::json, LineFault> ParseLineJson(std::string_view line);

// A line as Python's json module writes it, which has NaN and Infinity.
struct PythonLine {
  nlohmann::json value;  // with them
  std::string text;      // with null in their place
};

// nullopt: it has neither of them, or is no JSON beside them. Requires: as ParseLineJson.
std::optional<PythonLine> ReadPythonLine(std::string_view line);

}  // namespace spillway
