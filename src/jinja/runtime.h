// Runtime: what filters and tests may ask of the rendering that calls them.
// Thread rule: one thread.
#pragma once

#include <string>

#include "src/jinja/values/arguments.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

class Runtime {
 public:
  virtual ~Runtime() = default;

  // Filters and tests by name, as {{ value|name }} and {{ value is name }}.
  // Throws: Fault; also for a name that there is none of.
  virtual Value ApplyFilter(const std::string& name, const Value& value,
                            const Arguments& arguments) = 0;
  virtual bool ApplyTest(const std::string& name, const Value& value,
                         const Arguments& arguments) = 0;
};

}  // namespace spillway::jinja
