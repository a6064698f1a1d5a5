// Arguments: what a function, filter, test or method is called with.
// Thread rule: values.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

struct Arguments {
  using Named = std::pair<std::string, Value>;
  Values given;
  std::vector<Named, CountingAllocator<Named>> named;
  Held name_bytes;
};

// Arguments by the names of a function's parameters, in their order.
class BoundArguments {
 public:
  // Throws: Fault where too many are given, one twice, or one that the function does not have.
  BoundArguments(std::string_view function, const Arguments& arguments,
                 std::initializer_list<std::string_view> names);

  bool Has(std::size_t place) const { return values_[place].has_value(); }
  // Throws: Fault where it is missing.
  const Value& At(std::size_t place) const;
  // Null: missing.
  const Value* Find(std::size_t place) const { return values_[place] ? &*values_[place] : nullptr; }

  // One type's value; the fallback where it is missing. Throws: Fault for another type.
  bool Flag(std::size_t place, bool fallback) const;
  long Int(std::size_t place, long fallback) const;
  std::string TextOr(std::size_t place, std::string fallback) const;
  // Null: missing or None.
  const std::string* FindText(std::size_t place) const;
  const std::string& TextAt(std::size_t place) const;

 private:
  [[noreturn]] void FailType(std::size_t place, std::string_view wanted) const;

  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace spillway::jinja
