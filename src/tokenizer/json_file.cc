#include "src/tokenizer/json_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>
#include <variant>

#include "spillway/error.h"
#include "src/base/strict_json.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

using nlohmann::json;

// The largest published tokenizer.json has 33 MB and 2 million values; these bound the memory of a
// hostile one.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxValues = 8'000'000;

json ObjectOf(std::variant<json, JsonFault> parsed, const std::filesystem::path& file) {
  if (const auto* fault = std::get_if<JsonFault>(&parsed))
    RefuseTokenizer(file, fmt::format("{} {}", fault->path, fault->what));
  json& document = std::get<json>(parsed);
  if (!document.is_object()) RefuseTokenizer(file, "does not hold a JSON object");
  return std::move(document);
}

}  // namespace

void RefuseTokenizer(const std::filesystem::path& file, const std::string& what,
                     std::string_view remedy) {
  throw Error(ErrorCode::kTokenizer,
              fmt::format("{}: {}; {}", Printable(file.filename().string()), what, remedy));
}

std::string ReadTokenizerFile(const std::filesystem::path& file) {
  std::error_code failure;
  std::ifstream stream;
  const std::filesystem::file_status status = std::filesystem::status(file, failure);
  const bool is_file = std::filesystem::is_regular_file(status);
  if (std::filesystem::exists(status) && !is_file && !std::filesystem::is_directory(status)) {
    throw Error(
        ErrorCode::kModelMissing,
        fmt::format("{}: is a device, pipe or socket; put the model's tokenizer files beside "
                    "config.json",
                    Printable(file.string())));
  }
  errno = EISDIR;
  if (is_file) stream.open(file, std::ios::binary | std::ios::ate);
  const int error = failure ? failure.value() : errno;
  if (!stream.is_open()) {
    std::error_code ignored;
    const bool dangles =
        std::filesystem::is_symlink(file, ignored) && !std::filesystem::exists(file, ignored);
    ThrowSystemError(error,
                     fmt::format("{}: is not there or cannot be read", Printable(file.string())),
                     ErrorCode::kModelMissing,
                     dangles ? "its link leads nowhere, so download the model again"
                             : "put the model's tokenizer files beside config.json");
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
  return ObjectOf(ParseStrictJson(ReadTokenizerFile(file), kMaxValues), file);
}

std::optional<json> ReadOptionalJsonObject(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  return ObjectOf(ParsePythonJson(ReadTokenizerFile(file), kMaxValues), file);
}

JsonOrigin TokenizerOrigin(const std::filesystem::path& file) {
  return {.name = file.filename().string(),
          .code = ErrorCode::kTokenizer,
          .remedy = kTokenizerRemedy,
          .wording = JsonWording::kShort};
}

int32_t JsonTokenId(const json& value, std::string_view token, const JsonNode& place) {
  constexpr uint64_t kMaxId = std::numeric_limits<int32_t>::max() - 1;
  if (value.is_number_unsigned() && value.get<uint64_t>() <= kMaxId)
    return static_cast<int32_t>(value.get<uint64_t>());
  const std::string seen =
      value.is_number() ? Printable(value.dump(), 24) : std::string(value.type_name());
  place.Refuse(fmt::format("the id of \"{}\" is {}, not an integer from 0 to {}", Printable(token),
                           seen, kMaxId));
}

}  // namespace spillway
