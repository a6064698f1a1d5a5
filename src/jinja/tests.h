// Tests of jinja2: {{ value is defined }}. Plain functions; any thread.
#pragma once

#include <string_view>

#include "src/jinja/values/arguments.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

bool IsTest(std::string_view name);

// Throws: Fault for an unknown name and for arguments that do not suit.
bool TestValue(std::string_view name, const Value& value, const Arguments& arguments);

}  // namespace spillway::jinja
