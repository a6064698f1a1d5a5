// JsonNode: typed, range-checked reading of JSON that nobody vouches for; every refusal names file
// and value.
// Pure functions and views; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/error.h"

namespace spillway {

// Wording in which a refusal names a value and says what is wrong with it.
enum class JsonWording {
  kPath,   // $.cpu.matmul[2].rows: is -1, must be an integer from 1 to 8
  kKey,    // "rows" is -1, but must be an integer from 1 to 8
  kShort,  // "rows" is not an integer from 1 to 8; what is no object has no members
};

// Name that messages call a file by, and how they tell of its faults.
struct JsonOrigin {
  std::string name;
  ErrorCode code = ErrorCode::kMachine;
  std::string_view remedy = "correct the file";
  JsonWording wording = JsonWording::kPath;
  bool null_is_absent = false;  // for Member and Find
};

struct IntegerRange {
  int64_t low;
  int64_t high;
};

// A small document: at most 1 MiB and 100,000 values.
// Throws: Error origin.code "name: path: what; remedy".
nlohmann::json ParseJsonText(std::string_view text, const JsonOrigin& origin);

// Document in a regular file. Throws: as ParseJsonText, also Error origin.code when it is missing,
// kSystemLimit.
nlohmann::json ReadJsonFile(const std::filesystem::path& file, const JsonOrigin& origin);

class JsonItems;

// One value of a document and its place. Every accessor that does not find what it asks for throws
// Error origin.code that names the place. Lifetime: the document and the origin outlive it.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const JsonOrigin& origin)
      : value_(&value), origin_(&origin) {}

  const nlohmann::json& value() const { return *value_; }
  const JsonOrigin& origin() const { return *origin_; }

  // Refuses what is no object, or has other keys than these, which is what "strict" means.
  void ExpectKeys(const std::vector<std::string_view>& keys) const;

  JsonNode Member(std::string_view key) const;
  std::optional<JsonNode> Find(std::string_view key) const;     // nullopt: absent
  std::optional<JsonNode> FindSet(std::string_view key) const;  // nullopt: absent or null

  // Value of the member `key`; `fallback` where it is absent or null.
  bool Boolean(std::string_view key, bool fallback) const;
  std::string Text(std::string_view key, std::string_view fallback) const;
  int64_t Integer(std::string_view key, IntegerRange range, int64_t fallback) const;

  JsonItems Items() const;  // of an array
  std::string Text() const;
  bool Boolean() const;
  int64_t Integer(IntegerRange range) const;  // written as one: 3.0 is refused
  double Number(double low, double high) const;

  // `what` goes on after the file's name, and after the path where the wording has it: "is 3, must
  // be ...". Printable text only.
  [[noreturn]] void Refuse(std::string_view what) const;
  [[noreturn]] void Refuse(std::string_view what, std::string_view remedy) const;
  [[noreturn]] void Refuse(ErrorCode code, std::string_view what, std::string_view remedy) const;

 private:
  friend class JsonItems;
  JsonNode Item(std::size_t index) const;
  JsonNode MemberNode(const nlohmann::json& value, std::string_view key) const;
  [[noreturn]] void RefuseValue(std::string_view expected) const;

  const nlohmann::json* value_;
  const JsonOrigin* origin_;
  std::string path_ = "$";
  std::string key_;  // of the innermost member that this is or is in; printable
};

// Range of an array's items as nodes, each made when it is looked at.
class JsonItems {
 public:
  class Iterator {
   public:
    Iterator(const JsonNode& list, std::size_t index) : list_(&list), index_(index) {}
    JsonNode operator*() const { return list_->Item(index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const JsonNode* list_;
    std::size_t index_;
  };

  explicit JsonItems(const JsonNode& list) : list_(list) {}
  Iterator begin() const { return {list_, 0}; }
  Iterator end() const { return {list_, list_.value().size()}; }

 private:
  JsonNode list_;
};

// "version" of a file of ours. Throws: origin.code, also when the file is newer than `newest`.
void ExpectVersion(const JsonNode& root, int64_t newest);

}  // namespace spillway
