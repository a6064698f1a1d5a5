#include "src/base/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "src/base/system_error.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxSmallValues = 100'000;
constexpr std::string_view kRemedy = "correct the file";

std::string MemberPath(const std::string& parent, std::string_view key) {
  return fmt::format("{}.{}", parent, Printable(key, 40));
}

std::string ItemPath(const std::string& parent, std::size_t index) {
  return fmt::format("{}[{}]", parent, index);
}

// Builds the document by events, because nlohmann's own builder keeps the last of two equal keys
// and any depth.
class Builder : public nlohmann::json_sax<json> {
 public:
  explicit Builder(std::size_t max_values) : max_values_(max_values) {}

  json TakeDocument() { return std::move(document_); }
  JsonFault TakeFault() { return std::move(fault_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    auto& members = open_.back().container->get_ref<json::object_t&>();
    const auto [member, added] = members.try_emplace(std::move(name));
    open_.back().key = &member->first;
    open_.back().slot = &member->second;
    return added || Fail("occurs twice in one object");
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;  // nlohmann's own id
    if (error.id == kNumberOutOfRange) return Fail("is a number that is out of range");
    return Fail(fmt::format("is not valid JSON at byte {}", position));
  }

 private:
  // A container that is not closed yet, and where its next value goes. Pointers stay good: only the
  // innermost container changes.
  struct Frame {
    json* container = nullptr;
    const std::string* key = nullptr;  // of an object: the last one
    json* slot = nullptr;              // its value
  };

  std::string Path() const {
    std::string path = "$";
    for (const Frame& frame : open_) {
      const bool innermost = &frame == &open_.back();
      if (frame.container->is_array()) {
        path = ItemPath(path, frame.container->size() - (innermost ? 0 : 1));
      } else if (frame.key != nullptr) {
        path = MemberPath(path, *frame.key);
      }
    }
    return Printable(path, 120);
  }

  bool Fail(std::string what) {
    fault_ = {Path(), std::move(what)};
    return false;
  }

  bool Count() {
    if (++num_values_ <= max_values_) return true;
    fault_ = {"$", fmt::format("holds more than {} values", max_values_)};
    return false;
  }

  bool Add(json value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }

  json* Place(json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    const Frame& frame = open_.back();
    if (frame.container->is_object()) {
      *frame.slot = std::move(value);
      return frame.slot;
    }
    return &frame.container->get_ref<json::array_t&>().emplace_back(std::move(value));
  }

  bool Open(json container) {
    if (open_.size() == kMaxStrictJsonDepth)
      return Fail(fmt::format("nests deeper than {} levels", kMaxStrictJsonDepth));
    if (!Count()) return false;
    open_.push_back({Place(std::move(container))});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  std::size_t max_values_;
  std::size_t num_values_ = 0;
  json document_;
  std::vector<Frame> open_;
  JsonFault fault_;
};

}  // namespace

std::variant<json, JsonFault> ParseStrictJson(std::string_view text, std::size_t max_values) {
  Builder builder(max_values);
  if (!json::sax_parse(text, &builder)) return builder.TakeFault();
  return builder.TakeDocument();
}

json ParseJsonText(std::string_view text, const JsonOrigin& origin) {
  if (text.size() > kMaxFileBytes) {
    throw Error(origin.code, fmt::format("{}: has {} bytes, at most {} are read; check that it is "
                                         "the right file",
                                         Printable(origin.name), text.size(), kMaxFileBytes));
  }
  std::variant<json, JsonFault> parsed = ParseStrictJson(text, kMaxSmallValues);
  if (auto* document = std::get_if<json>(&parsed)) return std::move(*document);
  const JsonFault& fault = std::get<JsonFault>(parsed);
  throw Error(origin.code, fmt::format("{}: {}: {}; {}", Printable(origin.name), fault.path,
                                       fault.what, kRemedy));
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

void JsonNode::ExpectKeys(std::initializer_list<std::string_view> keys) const {
  ExpectKeys(std::vector<std::string_view>(keys));
}

void JsonNode::ExpectKeys(const std::vector<std::string_view>& keys) const {
  if (!value_->is_object()) RefuseValue("an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::ranges::find(keys, key) == keys.end())
      JsonNode(value, *origin_, MemberPath(path_, key)).Refuse("unknown key", "take it out");
  }
}

JsonNode JsonNode::Member(std::string_view key) const {
  if (std::optional<JsonNode> found = Find(key)) return *std::move(found);
  Refuse(fmt::format("the key \"{}\" is missing", key));
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  if (!value_->is_object()) RefuseValue("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return JsonNode(*found, *origin_, MemberPath(path_, key));
}

std::vector<JsonNode> JsonNode::Items() const {
  if (!value_->is_array()) RefuseValue("a list");
  std::vector<JsonNode> items;
  for (const json& item : *value_)
    items.push_back(JsonNode(item, *origin_, ItemPath(path_, items.size())));
  return items;
}

std::string JsonNode::Text() const {
  if (!value_->is_string()) RefuseValue("a string");
  return value_->get<std::string>();
}

bool JsonNode::Boolean() const {
  if (!value_->is_boolean()) RefuseValue("true or false");
  return value_->get<bool>();
}

int64_t JsonNode::Integer(int64_t low, int64_t high) const {
  // Unsigned values above INT64_MAX would wrap in get<int64_t>().
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= INT64_MAX);
  const int64_t number = fits ? value_->get<int64_t>() : 0;
  if (fits && number >= low && number <= high) return number;
  RefuseValue(fmt::format("an integer from {} to {}", low, high));
}

double JsonNode::Number(double low, double high) const {
  const double number = value_->is_number() ? value_->get<double>() : low - 1.0;
  if (number >= low && number <= high) return number;
  RefuseValue(fmt::format("a number from {} to {}", low, high));
}

void JsonNode::Refuse(std::string_view what, std::string_view remedy) const {
  throw Error(origin_->code, fmt::format("{}: {}: {}; {}", Printable(origin_->name),
                                         Printable(path_, 120), what, remedy));
}

void JsonNode::RefuseValue(std::string_view expected) const {
  const std::string seen = value_->is_string()       ? "a string"
                           : value_->is_structured() ? fmt::format("an {}", value_->type_name())
                                                     : value_->dump();
  Refuse(fmt::format("is {}, must be {}", Printable(seen, 40), expected));
}

void ExpectVersion(const JsonNode& root, int64_t newest) {
  const JsonNode version = root.Member("version");
  const int64_t found = version.Integer(1, INT64_MAX);
  if (found <= newest) return;
  version.Refuse(fmt::format("is {}, this program reads {}", found, newest),
                 "use a newer spillway");
}

}  // namespace spillway
