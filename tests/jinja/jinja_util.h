// Shorthands of the tests of templates.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/json_value.h"
#include "src/jinja/template.h"

namespace spillway::jinja {

// Text for variables that are stated as a JSON object.
inline std::string Rendered(std::string_view source, std::string_view variables = "{}",
                            const RenderLimits& limits = {}) {
  return Template(source).Render(*ValueFromJson(variables).AsDict(), std::tm(), limits);
}

// "line: message" of the fault; "" where there is none.
inline std::string FaultOf(std::string_view source, std::string_view variables = "{}",
                           const RenderLimits& limits = {}) {
  try {
    Rendered(source, variables, limits);
  } catch (const Fault& fault) {
    return std::to_string(fault.line()) + ": " + fault.what();
  }
  return "";
}

}  // namespace spillway::jinja
