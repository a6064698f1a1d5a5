// JSON as values of a template. Plain functions; any thread.
#pragma once

#include <string_view>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

// The document, objects as dicts in the order of their keys, whole numbers as integers.
// Requires: JSON that ParseStrictJson has taken. Throws: Fault for a number of more than 37 digits.
Value ValueFromJson(std::string_view text);

}  // namespace spillway::jinja
