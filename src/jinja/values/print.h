// Values as text: Python's str() and repr(), and json.dumps. Plain functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

std::string Str(const Value& value);  // print's; nothing for an undefined one
std::string Repr(const Value& value);

// Text of Str, without a copy where the value is one. Lifetime: the value's.
class Shown {
 public:
  explicit Shown(const Value& value);
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  std::string_view text() const { return text_; }

 private:
  Value made_;
  std::string_view text_;
};

// A float as Python writes it: 1.0, 1e+16, nan.
std::string FloatText(double value);

// json.dumps, with transformers' defaults.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; nullopt: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Throws: Fault for a value that JSON has no form for.
std::string ToJson(const Value& value, const JsonStyle& style);

}  // namespace spillway::jinja
