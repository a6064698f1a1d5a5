// Text of a line before anything reads it: its bytes checked, its white space found. Plain
// functions; any thread.
#pragma once

#include <string_view>

#include "src/requests/line_fault.h"

namespace spillway {

// "invalid_utf8", overlong forms and surrogates too, with the column in bytes of the first of them.
MaybeFault CheckText(std::string_view line);

// Tells whether there is nothing but white space: what Python's str.isspace takes for it. Any
// bytes.
bool IsBlank(std::string_view line);

// The line without the white space around it that JSON does not know (JSON's own in front stays, so
// that columns are the line's). Any bytes.
std::string_view WithoutOddSpace(std::string_view line);

}  // namespace spillway
