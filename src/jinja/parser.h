// Parser: a template's text -> its statements. Plain function; any thread.
#pragma once

#include <string_view>

#include "src/jinja/node.h"

namespace spillway::jinja {

struct ParsedTemplate {
  Block body;
};

// Throws: Fault with its line, for what is no template and for what is not supported.
ParsedTemplate Parse(std::string_view source);

}  // namespace spillway::jinja
