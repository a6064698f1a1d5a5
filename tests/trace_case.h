// CaseOf: names and values of a loop's case, "rows 3, KV bits 4", for SCOPED_TRACE or a message: a
// failure then says which case it was.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace spillway {

// Values as GoogleTest prints them; enums as their numbers.
template <typename Value>
std::string CaseValue(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return ::testing::PrintToString(static_cast<std::underlying_type_t<Value>>(value));
  } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return std::string(std::string_view(value));
  } else {
    return ::testing::PrintToString(value);
  }
}

template <typename Value, typename... Rest>
std::string CaseOf(std::string_view name, const Value& value, const Rest&... rest) {
  std::string text = std::string(name) + " " + CaseValue(value);
  if constexpr (sizeof...(rest) > 0) text += ", " + CaseOf(rest...);
  return text;
}

}  // namespace spillway
