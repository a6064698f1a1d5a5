// Typed, range-checked access to the keys of a config.json. Thread rule: const methods from any
// thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct IntegerRange {
  int64_t low;
  int64_t high;
};

// A key that is null counts as absent, as transformers has it. Every failure names the key and what
// it may be.
class ConfigReader {
 public:
  // Throws: Error kModelMalformed when `root` is not an object.
  ConfigReader(nlohmann::json root, std::string source);

  const std::string& source() const { return source_; }
  bool Has(const std::string& key) const { return Value(key) != nullptr; }

  // Throws (all below): Error kModelInconsistent: absent without a fallback, wrong type, out of
  // range.
  int64_t Integer(const std::string& key, IntegerRange range) const;
  int64_t Integer(const std::string& key, IntegerRange range, int64_t fallback) const;
  bool Boolean(const std::string& key, bool fallback) const;
  std::string Text(const std::string& key) const;
  std::string Text(const std::string& key, std::string_view fallback) const;

  // A number or a list of numbers; nullopt when absent.
  std::optional<std::vector<int64_t>> Integers(const std::string& key, IntegerRange range) const;

 private:
  const nlohmann::json* Value(const std::string& key) const;
  [[noreturn]] void ThrowMissing(const std::string& key) const;
  int64_t Checked(const std::string& key, const nlohmann::json& value, IntegerRange range) const;

  nlohmann::json root_;
  std::string source_;
};

}  // namespace spillway
