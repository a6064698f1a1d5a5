#include "src/base/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::string_view kAdvice = "check that the file belongs to this model";

[[noreturn]] void ThrowBadValue(const std::string& source, const std::string& key,
                                const nlohmann::json& value, std::string_view expected) {
  // dump() of a huge array would be built only to be cut: name the type of what is not a scalar.
  const std::string found =
      value.is_structured()
          ? value.type_name()
          : Printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 40);
  throw Error(ErrorCode::kModelInconsistent,
              fmt::format("{}: \"{}\" is {}, but must be {}; {}", Printable(source), key, found,
                          expected, kAdvice));
}

}  // namespace

ConfigReader::ConfigReader(nlohmann::json root, std::string source)
    : root_(std::move(root)), source_(std::move(source)) {
  if (root_.is_object()) return;
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: not a JSON object; {}", Printable(source_), kAdvice));
}

const nlohmann::json* ConfigReader::Value(const std::string& key) const {
  const auto at = root_.find(key);
  return at == root_.end() || at->is_null() ? nullptr : &*at;
}

void ConfigReader::ThrowMissing(const std::string& key) const {
  throw Error(ErrorCode::kModelInconsistent,
              fmt::format("{}: the key \"{}\" is missing; {}", Printable(source_), key, kAdvice));
}

int64_t ConfigReader::Checked(const std::string& key, const nlohmann::json& value,
                              IntegerRange range) const {
  // Unsigned values above INT64_MAX would wrap in get<int64_t>().
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const bool fits =
      value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= kMax);
  const int64_t number = fits ? value.get<int64_t>() : 0;
  if (fits && number >= range.low && number <= range.high) return number;
  ThrowBadValue(source_, key, value,
                fmt::format("an integer from {} to {}", range.low, range.high));
}

int64_t ConfigReader::Integer(const std::string& key, IntegerRange range) const {
  const nlohmann::json* value = Value(key);
  if (value == nullptr) ThrowMissing(key);
  return Checked(key, *value, range);
}

int64_t ConfigReader::Integer(const std::string& key, IntegerRange range, int64_t fallback) const {
  const nlohmann::json* value = Value(key);
  return value == nullptr ? fallback : Checked(key, *value, range);
}

bool ConfigReader::Boolean(const std::string& key, bool fallback) const {
  const nlohmann::json* value = Value(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) ThrowBadValue(source_, key, *value, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::Text(const std::string& key) const {
  const nlohmann::json* value = Value(key);
  if (value == nullptr) ThrowMissing(key);
  if (!value->is_string()) ThrowBadValue(source_, key, *value, "a string");
  return value->get<std::string>();
}

std::string ConfigReader::Text(const std::string& key, std::string_view fallback) const {
  return Has(key) ? Text(key) : std::string(fallback);
}

std::optional<std::vector<int64_t>> ConfigReader::Integers(const std::string& key,
                                                           IntegerRange range) const {
  const nlohmann::json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  if (!value->is_array()) return std::vector{Checked(key, *value, range)};
  for (const nlohmann::json& element : *value) {
    const int64_t number = Checked(key, element, range);
    if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace spillway
