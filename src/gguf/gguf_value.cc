#include "src/gguf/gguf_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "spillway/error.h"

namespace spillway {

bool GgufMetadata::Add(std::string name, GgufValue value) {
  return values_.emplace(std::move(name), std::move(value)).second;
}

void GgufMetadata::Refuse(const std::string& what) const {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: {}; download it again", Printable(source_), what));
}

template <class T>
const T* GgufMetadata::Find(std::string_view name, std::string_view expected) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return nullptr;
  if (const T* value = std::get_if<T>(&found->second)) return value;
  Refuse(fmt::format("\"{}\" must be {}", Printable(name), expected));
}

template <class T>
const T& GgufMetadata::Get(std::string_view name, std::string_view expected) const {
  if (const T* value = Find<T>(name, expected)) return *value;
  Refuse(fmt::format("has no \"{}\"", Printable(name)));
}

int64_t GgufMetadata::Count(std::string_view name) const {
  if (const std::optional<int64_t> found = FindCount(name)) return *found;
  Refuse(fmt::format("has no \"{}\"", Printable(name)));
}

std::optional<int64_t> GgufMetadata::FindCount(std::string_view name) const {
  const auto* value = Find<int64_t>(name, "an integer");
  if (value == nullptr) return std::nullopt;
  if (*value < 0 || *value > std::numeric_limits<int32_t>::max())
    Refuse(fmt::format("\"{}\" is {}, out of range", Printable(name), *value));
  return *value;
}

std::optional<int64_t> GgufMetadata::FindLayersCount(std::string_view name,
                                                     int64_t num_layers) const {
  if (!HasList(name)) return FindCount(name);
  const std::vector<int64_t>& counts = *FindCounts(name);
  if (num_layers < 1 || std::ssize(counts) != num_layers ||
      std::ranges::count(counts, counts.front()) != num_layers)
    Refuse(fmt::format("\"{}\" must be an integer, or the same for each of {} layers",
                       Printable(name), num_layers));
  return counts.front();
}

double GgufMetadata::Number(std::string_view name) const {
  if (const std::optional<double> found = FindNumber(name)) return *found;
  Refuse(fmt::format("has no \"{}\"", Printable(name)));
}

std::optional<double> GgufMetadata::FindNumber(std::string_view name) const {
  const auto* value = Find<double>(name, "a floating-point number");
  if (value == nullptr) return std::nullopt;
  if (!std::isfinite(*value)) Refuse(fmt::format("\"{}\" is not finite", Printable(name)));
  return *value;
}

std::string GgufMetadata::Text(std::string_view name) const {
  return Get<std::string>(name, "a string");
}

std::optional<std::string> GgufMetadata::FindText(std::string_view name) const {
  const auto* value = Find<std::string>(name, "a string");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> GgufMetadata::FindFlag(std::string_view name) const {
  const auto* value = Find<bool>(name, "a boolean");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const std::vector<std::string>& GgufMetadata::Texts(std::string_view name) const {
  return Get<std::vector<std::string>>(name, "a list of strings");
}

bool GgufMetadata::HasList(std::string_view name) const {
  const auto found = values_.find(name);
  return found != values_.end() && std::holds_alternative<std::vector<int64_t>>(found->second);
}

const std::vector<int64_t>* GgufMetadata::FindCounts(std::string_view name) const {
  return Find<std::vector<int64_t>>(name, "a list of integers");
}

const std::vector<double>* GgufMetadata::FindNumbers(std::string_view name) const {
  return Find<std::vector<double>>(name, "a list of floating-point numbers");
}

}  // namespace spillway
