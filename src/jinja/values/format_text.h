// Python's two ways of filling in a text: "%s" % values, and "{}".format(values).
// Plain functions; any thread.
#pragma once

#include <string_view>

#include "src/jinja/values/arguments.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

// `values`: one value, a tuple of them, or a dict for %(name)s.
// Throws: Fault for a directive other than s, r, d, i, f, x and %, and for values that do not suit.
Value FormatPercent(const Value& format, const Value& values);

// Throws: Fault for a field with a format specification, or without a value.
Value FormatFields(std::string_view format, const Arguments& arguments);

}  // namespace spillway::jinja
