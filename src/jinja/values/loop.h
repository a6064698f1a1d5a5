// Answers to what templates ask of `loop`. Plain functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "src/jinja/values/arguments.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

// index, first, previtem, ...; nullopt: there is no such attribute.
std::optional<Value> LoopAttribute(const LoopPtr& loop, const std::string& name);

// loop.cycle(...) and loop.changed(...). Throws: Fault.
Value CallLoopMethod(Loop& loop, const std::string& name, const Arguments& arguments);

}  // namespace spillway::jinja
