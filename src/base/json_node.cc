#include "src/base/json_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <utility>
#include <variant>

#include "src/base/json_text.h"
#include "src/base/strict_json.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxSmallValues = 100'000;

// Value as a message shows it, short. The dump of a large array would be built only to be cut.
std::string Found(const json& value, JsonWording wording) {
  if (wording == JsonWording::kPath && value.is_string()) return "a string";
  if (value.is_structured())
    return wording == JsonWording::kPath ? fmt::format("an {}", value.type_name())
                                         : value.type_name();
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return fmt::format("{}", value.get<double>());
  return Printable(JsonText(value), 40);
}

}  // namespace

json ParseJsonText(std::string_view text, const JsonOrigin& origin) {
  if (text.size() > kMaxFileBytes) {
    throw Error(origin.code,
                fmt::format("{}: has more than {} bytes, which are read at most; check "
                            "that it is the right file",
                            Printable(origin.name), kMaxFileBytes));
  }
  std::variant<json, JsonFault> parsed = ParseStrictJson(text, kMaxSmallValues);
  if (auto* document = std::get_if<json>(&parsed)) return std::move(*document);
  const JsonFault& fault = std::get<JsonFault>(parsed);
  throw Error(origin.code, fmt::format("{}: {}: {}; {}", Printable(origin.name), fault.path,
                                       fault.what, origin.remedy));
}

json ReadJsonFile(const std::filesystem::path& file, const JsonOrigin& origin) {
  constexpr std::string_view kAdvice = "check the path";
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(file, failed);
  const bool exists = std::filesystem::exists(status);
  // Opening a pipe would wait for its writer, and a device may never end.
  if (exists && !std::filesystem::is_regular_file(status)) {
    throw Error(
        origin.code,
        fmt::format("{}: is {}, not a regular file; {}", Printable(origin.name),
                    std::filesystem::is_directory(status) ? "a folder" : "a device, pipe or socket",
                    kAdvice));
  }
  errno = 0;
  std::ifstream stream;
  if (exists) stream.open(file, std::ios::binary);
  if (!exists || !stream) {
    ThrowSystemError(exists ? errno : failed.value(),
                     fmt::format("{}: cannot be read", Printable(origin.name)), origin.code,
                     kAdvice);
  }
  std::string text(kMaxFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return ParseJsonText(text, origin);
}

void JsonNode::ExpectKeys(const std::vector<std::string_view>& keys) const {
  if (!value_->is_object()) RefuseValue("an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::ranges::find(keys, key) == keys.end())
      MemberNode(value, key).Refuse("unknown key", "take it out");
  }
}

JsonNode JsonNode::MemberNode(const json& value, std::string_view key) const {
  JsonNode member(value, *origin_);
  member.path_ = JsonMemberPath(path_, key);
  member.key_ = Printable(key, 40);
  return member;
}

JsonNode JsonNode::Member(std::string_view key) const {
  if (std::optional<JsonNode> found = Find(key)) return *std::move(found);
  if (origin_->wording == JsonWording::kShort) Refuse(fmt::format("a part has no \"{}\"", key));
  Refuse(fmt::format("the key \"{}\" is missing", key));
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  if (!value_->is_object() && origin_->wording != JsonWording::kShort) RefuseValue("an object");
  const auto found = value_->find(key);  // of what is no object: the end
  if (found == value_->end() || (origin_->null_is_absent && found->is_null())) return std::nullopt;
  return MemberNode(*found, key);
}

std::optional<JsonNode> JsonNode::FindSet(std::string_view key) const {
  std::optional<JsonNode> found = Find(key);
  return found && !found->value().is_null() ? std::move(found) : std::nullopt;
}

bool JsonNode::Boolean(std::string_view key, bool fallback) const {
  const std::optional<JsonNode> found = FindSet(key);
  return found ? found->Boolean() : fallback;
}

std::string JsonNode::Text(std::string_view key, std::string_view fallback) const {
  const std::optional<JsonNode> found = FindSet(key);
  return found ? found->Text() : std::string(fallback);
}

int64_t JsonNode::Integer(std::string_view key, IntegerRange range, int64_t fallback) const {
  const std::optional<JsonNode> found = FindSet(key);
  return found ? found->Integer(range) : fallback;
}

JsonItems JsonNode::Items() const {
  if (!value_->is_array()) RefuseValue("a list");
  return JsonItems(*this);
}

JsonNode JsonNode::Item(std::size_t index) const {
  JsonNode item((*value_)[index], *origin_);
  item.path_ = JsonItemPath(path_, index);
  item.key_ = key_;
  return item;
}

std::string JsonNode::Text() const {
  if (!value_->is_string()) RefuseValue("a string");
  return value_->get<std::string>();
}

bool JsonNode::Boolean() const {
  if (!value_->is_boolean()) RefuseValue("true or false");
  return value_->get<bool>();
}

int64_t JsonNode::Integer(IntegerRange range) const {
  // Unsigned values above INT64_MAX would wrap in get<int64_t>().
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= INT64_MAX);
  const int64_t number = fits ? value_->get<int64_t>() : 0;
  if (fits && number >= range.low && number <= range.high) return number;
  RefuseValue(fmt::format("an integer from {} to {}", range.low, range.high));
}

double JsonNode::Number(double low, double high) const {
  const double number = value_->is_number() ? value_->get<double>() : low - 1.0;
  if (number >= low && number <= high) return number;
  RefuseValue(fmt::format("a number from {} to {}", low, high));
}

void JsonNode::Refuse(std::string_view what) const { Refuse(what, origin_->remedy); }

void JsonNode::Refuse(std::string_view what, std::string_view remedy) const {
  Refuse(origin_->code, what, remedy);
}

void JsonNode::Refuse(ErrorCode code, std::string_view what, std::string_view remedy) const {
  const bool has_path = origin_->wording == JsonWording::kPath;
  throw Error(
      code, fmt::format("{}: {}{}{}; {}", Printable(origin_->name),
                        has_path ? Printable(path_, 120) : "", has_path ? ": " : "", what, remedy));
}

void JsonNode::RefuseValue(std::string_view expected) const {
  const JsonWording wording = origin_->wording;
  if (wording == JsonWording::kShort) Refuse(fmt::format("\"{}\" is not {}", key_, expected));
  const std::string found = Found(*value_, wording);
  if (wording == JsonWording::kPath) Refuse(fmt::format("is {}, must be {}", found, expected));
  Refuse(fmt::format("\"{}\" is {}, but must be {}", key_, found, expected));
}

void ExpectVersion(const JsonNode& root, int64_t newest) {
  const JsonNode version = root.Member("version");
  const int64_t found = version.Integer({1, INT64_MAX});
  if (found <= newest) return;
  version.Refuse(fmt::format("is {}, this program reads {}", found, newest),
                 "use a newer spillway");
}

}  // namespace spillway
