// Strict JSON: text that nobody vouches for, read with bounded size and depth, no key twice in an
// object, and every fault named by its JSON path ("$.cpu.matmul[2].rows").
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace spillway {

inline constexpr std::size_t kMaxStrictJsonDepth = 64;

enum class JsonFaultKind {
  kSyntax,  // a number that no double holds, or a NUL byte, too
  kTooDeep,
  kTooManyValues,
  kKeyTwice,
};

struct JsonFault {
  JsonFaultKind kind = JsonFaultKind::kSyntax;
  std::string path;         // where; printable
  std::string what;         // "is not valid JSON at byte 17"; printable
  std::string detail = {};  // the parser's own words, or the key, as they came
  std::size_t byte = 0;     // of a fault of syntax, counted from 1
};

// What NaN, Infinity and -Infinity are, which Python writes.
enum class NonFinite { kFault, kNumber };

// The document, unless it is no JSON, nests deeper than kMaxStrictJsonDepth, holds more than
// `max_values` values or a number that no double holds, or gives a key twice. No recursion: depth
// costs no stack. Text behind a NUL byte is never passed over: the byte is a fault.
std::variant<nlohmann::json, JsonFault> ParseStrictJson(std::string_view text,
                                                        std::size_t max_values,
                                                        NonFinite nonfinite = NonFinite::kFault);

// ParseStrictJson with NonFinite::kNumber for files that programs in Python write: of equal keys
// the last one counts.
std::variant<nlohmann::json, JsonFault> ParsePythonJson(std::string_view text,
                                                        std::size_t max_values);

// Whether the text may have one of the three, if only in a string.
bool MentionsNonFinite(std::string_view text);

// The text with null in the place of each NaN, Infinity and -Infinity outside strings; nullopt
// where there is none.
std::optional<std::string> WithoutNonFinite(std::string_view text);

// "$.cpu.matmul" and "rows" -> "$.cpu.matmul.rows"; "$.cpu.matmul" and 2 -> "$.cpu.matmul[2]".
std::string JsonMemberPath(const std::string& parent, std::string_view key);
std::string JsonItemPath(const std::string& parent, std::size_t index);

}  // namespace spillway
