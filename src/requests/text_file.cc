#include "src/requests/text_file.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/requests/input_bytes.h"
#include "src/requests/input_form.h"
#include "src/requests/line_text.h"

namespace spillway {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::string ReadTextFile(const std::filesystem::path& path, std::string_view flag) {
  const std::string name = path == "-" ? "standard input" : Printable(path.string());
  std::optional<std::string> text = InputBytes(path, name, flag).ReadAll(kMaxTextBytes);
  if (!text) {
    throw Error(ErrorCode::kInput, fmt::format("{}: has more than the {} MiB that {} takes; cut it",
                                               name, kMaxTextBytes >> 20, flag));
  }
  if (text->starts_with(kByteOrderMark)) text->erase(0, kByteOrderMark.size());
  RefuseOtherForm({*text, true}, InputForm::kPlainLines, name);
  if (const std::size_t at = text->find('\0'); at != std::string::npos) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: byte {} is NUL; give a file of text", name, at + 1));
  }
  if (const MaybeFault fault = CheckText(*text)) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", name, fault->message));
  }
  return *std::move(text);
}

}  // namespace spillway
