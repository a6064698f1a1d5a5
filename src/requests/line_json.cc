#include "src/requests/line_json.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/base/strict_json.h"

namespace spillway {
namespace {

using nlohmann::json;

// Far more token ids than a model has positions. A value takes 16 bytes and more: a line of 16 MiB
// could ask for hundreds of MiB.
constexpr std::size_t kMaxValues = std::size_t{1} << 18;

// nlohmann's text without its own prefix: "[json.exception.parse_error.101] parse error at line 1,
// column 5: syntax error while parsing ...". The quoted last token may be a megabyte long.
std::string Reason(std::string_view what) {
  if (const std::size_t at = what.find("column "); at != std::string_view::npos) {
    what.remove_prefix(std::min(what.size(), what.find(": ", at) + 2));
  } else if (const std::size_t end = what.find("] "); end != std::string_view::npos) {
    what.remove_prefix(end + 2);
  }
  return Printable(what, 160);
}

LineFault FaultOf(const JsonFault& fault) {
  switch (fault.kind) {
    case JsonFaultKind::kSyntax:
      return {"invalid_json", fmt::format("column {}: {}", fault.byte, Reason(fault.detail))};
    case JsonFaultKind::kTooDeep:
      return {"too_deep", fmt::format("nested deeper than {} levels", kMaxStrictJsonDepth)};
    case JsonFaultKind::kTooManyValues:
      return {"too_many_values", fmt::format("holds more than {} values", kMaxValues)};
    case JsonFaultKind::kKeyTwice:
      break;
  }
  return {"duplicate_key", fmt::format("key \"{}\" is given twice", Printable(fault.detail))};
}

}  // namespace

std::variant<json, LineFault> ParseLineJson(std::string_view line) {
  // The parser would pass over a mark at the start of any line; LineSource dropped the file's own.
  if (line.starts_with("\xEF\xBB\xBF")) {
    return LineFault{"invalid_json",
                     "column 1: a byte order mark is only accepted at the start of the file"};
  }
  if (const std::size_t at = line.find('\0'); at != std::string_view::npos)
    return LineFault{"nul_byte", fmt::format("column {}: a NUL byte", at + 1)};
  std::variant<json, JsonFault> parsed = ParseStrictJson(line, kMaxValues, NonFinite::kNumber);
  if (const auto* fault = std::get_if<JsonFault>(&parsed)) return FaultOf(*fault);
  return std::move(std::get<json>(parsed));
}

}  // namespace spillway
