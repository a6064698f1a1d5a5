#include "src/checkpoint/bounded_json.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "spillway/error.h"

namespace spillway {

nlohmann::json ParseBoundedJson(std::string_view text, std::string_view source) {
  // The size of the text bounds the number of values.
  auto parsed = ParseStrictJson(text, std::numeric_limits<std::size_t>::max());
  if (auto* document = std::get_if<nlohmann::json>(&parsed)) return std::move(*document);
  const JsonFault& fault = std::get<JsonFault>(parsed);
  throw Error(ErrorCode::kModelMalformed, fmt::format("{}: {} {}; download it again",
                                                      Printable(source), fault.path, fault.what));
}

nlohmann::json ReadBoundedJson(const ModelFile& file, int64_t max_bytes) {
  if (file.size() > max_bytes) {
    throw Error(
        ErrorCode::kModelUnsupported,
        fmt::format("{}: has {} bytes, at most {} are read; check that it is the right file",
                    Printable(file.name()), file.size(), max_bytes));
  }
  return ParseBoundedJson(file.ReadStart(max_bytes), file.name());
}

}  // namespace spillway
