// Fault: why a template cannot be read or rendered. Thread rule: a value.
#pragma once

#include <stdexcept>
#include <string>

namespace spillway::jinja {

class Fault : public std::runtime_error {
 public:
  // `line` of the template; 0: not known yet, and given by whoever knows.
  explicit Fault(const std::string& message, int line = 0)
      : std::runtime_error(message), line_(line) {}

  int line() const { return line_; }

 private:
  int line_;
};

}  // namespace spillway::jinja
