// One line as strict JSON. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "src/requests/line_fault.h"

namespace spillway {

// The line's value. Deeper than 64 levels, more than 262,144 values, a key given twice, a number
// that no double holds, a byte 0: faults "too_deep", "too_many_values", "duplicate_key",
// "invalid_json", "nul_byte". NaN, Infinity and -Infinity, which Python writes, are numbers. Any
// character may stand in a string, \u0000 too. Syntax errors name their column, in bytes. No
// recursion, so that the line's depth costs no stack. Requires: valid UTF-8.
std::variant<nlohmann::json, LineFault> ParseLineJson(std::string_view line);

}  // namespace spillway
