// JSON as text. A document may hold names of folders, which need not be UTF-8: bytes that are not
// become U+FFFD. Pure functions of nlohmann::json or ordered_json; any thread.
#pragma once

#include <algorithm>
#include <string>

namespace spillway {

// Text on one line.
template <typename Json>
std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Appends a value that begins at a column of `indent` spaces: an object's members are a line each,
// and so are the items of a list, unless they are all numbers, texts and the like.
template <typename Json>
void AppendJsonLines(const Json& json, std::size_t indent, std::string& text) {
  const bool structured = json.is_structured() && !json.empty();
  if (!structured) {
    text += JsonText(json);
    return;
  }
  const bool has_lines =
      json.is_object() ||
      std::any_of(json.begin(), json.end(), [](const Json& item) { return item.is_structured(); });
  const auto begin_line = [&](std::size_t column) {
    if (!has_lines) return;
    text += '\n';
    text.append(column, ' ');
  };
  text += json.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (!first) text += has_lines ? "," : ", ";
    first = false;
    begin_line(indent + 2);
    if (json.is_object()) text.append(JsonText(Json(key))).append(": ");
    AppendJsonLines(value, indent + 2, text);
  }
  begin_line(indent);
  text += json.is_object() ? '}' : ']';
}

// A file for people too: indented, lists of numbers in one line, with a newline at its end.
template <typename Json>
std::string JsonFileText(const Json& json) {
  std::string text;
  AppendJsonLines(json, 0, text);
  text += '\n';
  return text;
}

}  // namespace spillway
