// Filters of jinja2, with transformers' own tojson: {{ value|name(arguments) }}.
// Plain functions; any thread.
#pragma once

#include <string_view>

#include "src/jinja/runtime.h"
#include "src/jinja/values/arguments.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

bool IsFilter(std::string_view name);

// Throws: Fault for an unknown name and for arguments that do not suit.
Value FilterValue(std::string_view name, const Value& value, const Arguments& arguments,
                  Runtime& runtime);

struct FilterCall {
  std::string_view name;
  const Value& value;
  const Arguments& arguments;
  Runtime& runtime;

  BoundArguments Bind(std::initializer_list<std::string_view> names) const {
    return {name, arguments, names};
  }
};

using FilterFunction = Value (*)(const FilterCall& call);

// The filters of texts and numbers, and those of sequences; null: the name is none of theirs.
FilterFunction FindTextFilter(std::string_view name);
FilterFunction FindSequenceFilter(std::string_view name);

}  // namespace spillway::jinja
