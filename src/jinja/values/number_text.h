// Numbers as Python's int() and float() read them. Plain functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

// White space around, a sign, digits with single _ between them; nullopt: no integer, or one of
// more than 37 digits.
std::optional<Integer> ReadInteger(std::string_view text);
std::optional<double> ReadReal(std::string_view text);

}  // namespace spillway::jinja
