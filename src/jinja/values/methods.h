// Methods of Python's types that templates call: text.strip(), dict.items().
// Plain functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/jinja/values/arguments.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

bool HasMethod(const Value& object, std::string_view name);

// A method of Python that changes its object, which the sandbox of chat templates forbids.
bool IsUnsafeMethod(const Value& object, std::string_view name);

// A method of some type of Python's that is missing here.
bool IsUnsupportedMethod(std::string_view name);

// Requires: HasMethod. Throws: Fault.
Value CallMethod(const Value& object, std::string_view name, const Arguments& arguments);

// Methods of texts. Requires: IsTextMethod.
bool IsTextMethod(std::string_view name);
Value CallTextMethod(const std::string& text, std::string_view name, const Arguments& arguments);

}  // namespace spillway::jinja
