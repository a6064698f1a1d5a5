#include "src/requests/text_file.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/descriptor.h"
#include "src/requests/input_file.h"
#include "src/requests/line_text.h"

namespace spillway {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::string ReadTextFile(const std::filesystem::path& path, std::string_view flag) {
  const std::string name = path == "-" ? "standard input" : Printable(path.string());
  const Descriptor file = OpenInput(path, flag);
  std::string text;
  std::size_t size = 0;
  while (true) {
    text.resize(size + kReadBytes);
    const std::size_t got = ReadSome(file, text.data() + size, kReadBytes, name);
    if (got == 0) break;
    size += got;
    if (size > kMaxTextBytes) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: has more than the {} MiB that {} takes; cut it", name,
                              kMaxTextBytes >> 20, flag));
    }
  }
  text.resize(size);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (const MaybeFault fault = CheckText(text)) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", name, fault->message));
  }
  return text;
}

}  // namespace spillway
