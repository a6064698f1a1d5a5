// JSON as text. A document may hold names of folders, which need not be UTF-8: bytes that are not
// become U+FFFD. Pure functions of nlohmann::json or ordered_json; any thread.
#pragma once

#include <string>

namespace spillway {

// Text on one line.
template <typename Json>
std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A file for people too: indented, with a newline at its end.
template <typename Json>
std::string JsonFileText(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway
