// Strict JSON: text that nobody vouches for, read with bounded size and depth, no key twice in an
// object, and every fault named by its JSON path ("$.cpu.matmul[2].rows").
// Pure functions and views; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "spillway/error.h"

namespace spillway {

inline constexpr std::size_t kMaxStrictJsonDepth = 64;

struct JsonFault {
  std::string path;  // where; printable
  std::string what;  // "is not valid JSON at byte 17"; printable
};

// The document, unless it is no JSON, nests deeper than kMaxStrictJsonDepth, holds more than
// `max_values` values or a number that no double holds, or gives a key twice. No recursion: depth
// costs no stack.
std::variant<nlohmann::json, JsonFault> ParseStrictJson(std::string_view text,
                                                        std::size_t max_values);

// What messages call a file, and what its faults are.
struct JsonOrigin {
  std::string name;
  ErrorCode code = ErrorCode::kMachine;
};

// A small document: at most 1 MiB and 100,000 values.
// Throws: Error origin.code "name: path: what; correct the file".
nlohmann::json ParseJsonText(std::string_view text, const JsonOrigin& origin);

// The same of a regular file. Throws: also Error origin.code when it is missing, kSystemLimit.
nlohmann::json ReadJsonFile(const std::filesystem::path& file, const JsonOrigin& origin);

// One value of a document and its place. Every accessor that does not find what it asks for throws
// Error origin.code with the path. Lifetime: the document and the origin outlive it.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const JsonOrigin& origin) : JsonNode(value, origin, "$") {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // That this is an object and has no other keys than these, which is what "strict" means.
  void ExpectKeys(std::initializer_list<std::string_view> keys) const;
  void ExpectKeys(const std::vector<std::string_view>& keys) const;

  // Requires: ExpectKeys has passed.
  JsonNode Member(std::string_view key) const;
  std::optional<JsonNode> Find(std::string_view key) const;  // nullopt: absent; null is a value

  std::vector<JsonNode> Items() const;  // of an array
  std::string Text() const;
  bool Boolean() const;
  int64_t Integer(int64_t low, int64_t high) const;  // written as one: 3.0 is refused
  double Number(double low, double high) const;

  // `what` goes on after the path: "is 3, must be ...". Printable text only.
  [[noreturn]] void Refuse(std::string_view what,
                           std::string_view remedy = "correct the file") const;

 private:
  JsonNode(const nlohmann::json& value, const JsonOrigin& origin, std::string path)
      : value_(&value), origin_(&origin), path_(std::move(path)) {}
  [[noreturn]] void RefuseValue(std::string_view expected) const;

  const nlohmann::json* value_;
  const JsonOrigin* origin_;
  std::string path_;
};

// "version" of a file of ours. Throws: origin.code, also when the file is newer than `newest`.
void ExpectVersion(const JsonNode& root, int64_t newest);

}  // namespace spillway
