// Checks of the bytes of a line before anything reads them. Plain functions; any thread.
#pragma once

#include <string_view>

#include "src/requests/line_fault.h"

namespace spillway {

// "invalid_utf8" (overlong forms and surrogates too, and U+FFFE, a byte order mark turned round: a
// file converted with the wrong byte order) or "nul_byte", with the column in bytes of the first of
// them.
MaybeFault CheckText(std::string_view line);

// Checks a string for what JSON escapes may have made: \u0000 and \ufffe.
// Requires: valid UTF-8.
MaybeFault CheckString(std::string_view text);

}  // namespace spillway
