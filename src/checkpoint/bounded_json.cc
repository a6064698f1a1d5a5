#include "src/checkpoint/bounded_json.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "spillway/error.h"

namespace spillway {
namespace {

// The size of the text bounds the number of values.
constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

nlohmann::json DocumentOf(std::variant<nlohmann::json, JsonFault> parsed, std::string_view source) {
  if (auto* document = std::get_if<nlohmann::json>(&parsed)) return std::move(*document);
  const JsonFault& fault = std::get<JsonFault>(parsed);
  throw Error(ErrorCode::kModelMalformed, fmt::format("{}: {} {}; download it again",
                                                      Printable(source), fault.path, fault.what));
}

std::string ReadBounded(const ModelFile& file, int64_t max_bytes) {
  if (file.size() > max_bytes) {
    throw Error(
        ErrorCode::kModelUnsupported,
        fmt::format("{}: has {} bytes, at most {} are read; check that it is the right file",
                    Printable(file.name()), file.size(), max_bytes));
  }
  return file.ReadStart(max_bytes);
}

}  // namespace

nlohmann::json ParseBoundedJson(std::string_view text, std::string_view source) {
  return DocumentOf(ParseStrictJson(text, kAnyNumber), source);
}

nlohmann::json ReadBoundedJson(const ModelFile& file, int64_t max_bytes) {
  return ParseBoundedJson(ReadBounded(file, max_bytes), file.name());
}

nlohmann::json ReadPythonJson(const ModelFile& file, int64_t max_bytes) {
  return DocumentOf(ParsePythonJson(ReadBounded(file, max_bytes), kAnyNumber), file.name());
}

}  // namespace spillway
