#include "src/tokenizer/json_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/system_error.h"

namespace spillway {
namespace {

using nlohmann::json;

// The largest published tokenizer.json has 33 MB and 2 million values; these bound the memory of a
// hostile one.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxValues = 8'000'000;
constexpr std::size_t kMaxDepth = 64;

// Builds the document by events, because nlohmann's own builder keeps the last of two equal keys
// and any depth.
class Builder : public nlohmann::json_sax<json> {
 public:
  json TakeDocument() { return std::move(document_); }
  const std::string& fault() const { return fault_; }

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
    const auto [member, added] = open_.back()->emplace(name, nullptr);
    if (!added)
      return Fail(fmt::format("the key \"{}\" occurs twice in one object", Printable(name)));
    slot_ = &*member;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(fmt::format("is not valid JSON at byte {}", position));
  }

 private:
  bool Fail(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }

  bool Add(json value) {
    if (++num_values_ > kMaxValues)
      return Fail(fmt::format("holds more than {} values", kMaxValues));
    Place(std::move(value));
    return true;
  }

  json* Place(json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *slot_ = std::move(value);
    return slot_;
  }

  bool Open(json container) {
    if (open_.size() == kMaxDepth)
      return Fail(fmt::format("nests deeper than {} levels", kMaxDepth));
    if (++num_values_ > kMaxValues)
      return Fail(fmt::format("holds more than {} values", kMaxValues));
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  json document_;
  std::vector<json*> open_;  // the containers around the current value; stable, a parent grows only
                             // after its child
  json* slot_ = nullptr;     // the value of the last key
  std::size_t num_values_ = 0;
  std::string fault_;
};

}  // namespace

void RefuseTokenizer(const std::filesystem::path& file, const std::string& what,
                     const std::string& remedy) {
  throw Error(ErrorCode::kTokenizer,
              fmt::format("{}: {}; {}", Printable(file.filename().string()), what, remedy));
}

std::string ReadTokenizerFile(const std::filesystem::path& file) {
  std::error_code ignored;
  errno = 0;
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const int error = stream ? EISDIR : errno;  // a folder opens as well as a file
  if (!std::filesystem::is_regular_file(file, ignored) || !stream) {
    ThrowSystemError(
        error, fmt::format("{}: is not there or cannot be read", Printable(file.string())),
        ErrorCode::kModelMissing, "put the model's tokenizer files beside config.json");
  }
  const auto size = static_cast<std::size_t>(stream.tellg());
  if (size > kMaxFileBytes)
    RefuseTokenizer(file, fmt::format("has {} bytes, more than any tokenizer ({} at most)", size,
                                      kMaxFileBytes));
  std::string bytes(size, '\0');
  stream.seekg(0);
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::size_t>(stream.gcount()) != size)
    RefuseTokenizer(file, "could not be read to its end");
  if (bytes.empty()) RefuseTokenizer(file, "is empty");
  return bytes;
}

json ReadJsonObject(const std::filesystem::path& file) {
  const std::string bytes = ReadTokenizerFile(file);
  Builder builder;
  if (!json::sax_parse(bytes, &builder)) RefuseTokenizer(file, builder.fault());
  json document = builder.TakeDocument();
  if (!document.is_object()) RefuseTokenizer(file, "does not hold a JSON object");
  return document;
}

std::optional<json> ReadOptionalJsonObject(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  return ReadJsonObject(file);
}

bool JsonBool(const json& object, const char* key, bool fallback,
              const std::filesystem::path& file) {
  const auto member = object.find(key);
  if (member == object.end() || member->is_null()) return fallback;
  if (!member->is_boolean()) RefuseTokenizer(file, fmt::format("\"{}\" is not true or false", key));
  return member->get<bool>();
}

std::string JsonString(const json& object, const char* key, const std::string& fallback,
                       const std::filesystem::path& file) {
  const auto member = object.find(key);
  if (member == object.end() || member->is_null()) return fallback;
  if (!member->is_string()) RefuseTokenizer(file, fmt::format("\"{}\" is not a string", key));
  return member->get<std::string>();
}

int32_t JsonTokenId(const json& value, std::string_view token, const std::filesystem::path& file) {
  constexpr uint64_t kMaxId = std::numeric_limits<int32_t>::max() - 1;
  if (value.is_number_unsigned() && value.get<uint64_t>() <= kMaxId)
    return static_cast<int32_t>(value.get<uint64_t>());
  const std::string seen =
      value.is_number() ? Printable(value.dump(), 24) : std::string(value.type_name());
  RefuseTokenizer(file, fmt::format("the id of \"{}\" is {}, not an integer from 0 to {}",
                                    Printable(token), seen, kMaxId));
}

}  // namespace spillway
