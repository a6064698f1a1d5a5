#include "src/requests/text_file.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/base/descriptor.h"
#include "src/requests/input_file.h"
#include "src/requests/line_text.h"

namespace spillway {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::string ReadTextFile(const std::filesystem::path& path, std::string_view flag) {
  const std::string name = path == "-" ? "standard input" : Printable(path.string());
  const Descriptor file = OpenInput(path, flag);
  std::optional<std::string> text = ReadToEnd(file, kMaxTextBytes, name);
  if (!text) {
    throw Error(ErrorCode::kInput, fmt::format("{}: has more than the {} MiB that {} takes; cut it",
                                               name, kMaxTextBytes >> 20, flag));
  }
  if (text->starts_with(kByteOrderMark)) text->erase(0, kByteOrderMark.size());
  if (const MaybeFault fault = CheckText(*text)) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", name, fault->message));
  }
  return *std::move(text);
}

}  // namespace spillway
