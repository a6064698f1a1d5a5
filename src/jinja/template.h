// Template: a chat template in Jinja, as transformers sets it up: trim_blocks, lstrip_blocks, loop
// controls, {% generation %}, tojson, raise_exception and strftime_now, in a sandbox where nothing
// can be changed. What is not supported is refused when it is read.
// Thread rule: immutable; const methods from any thread.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "src/jinja/interpreter.h"  // RenderLimits
#include "src/jinja/parser.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

class Template {
 public:
  // Requires: valid UTF-8. Throws: Fault with its line.
  explicit Template(std::string_view source);

  // Text for these variables. `now` is what strftime_now tells.
  // Throws: Fault, with its line: what the template raises, what Python would, and what goes beyond
  // the limits.
  std::string Render(const Dict& variables, const std::tm& now,
                     const RenderLimits& limits = {}) const;

 private:
  ParsedTemplate parsed_;
};

}  // namespace spillway::jinja
