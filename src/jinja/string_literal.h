// String literals of a template. Plain function; any thread.
#pragma once

#include <string>
#include <string_view>

namespace spillway::jinja {

// Text between the quotes, with Python's escapes resolved: \n, \x41, \u20ac, \101; of an
// escape that there is none of both characters stay.
// Throws: Fault with `line` for a malformed \x, \u or \U, half a surrogate pair, or \N.
std::string Unescaped(std::string_view text, int line);

}  // namespace spillway::jinja
