#include "src/answers/framed_line.h"

#include <fmt/format.h>

#include "src/base/hash.h"

namespace spillway {
namespace {

constexpr std::size_t kHashDigits = 16;

}  // namespace

std::string FramedLine(std::string_view text) {
  return fmt::format("{} {}\n", HashDigits(TextHash(text)), text);
}

std::optional<std::string_view> FramedText(std::string_view line) {
  if (line.size() <= kHashDigits + 1 || line[kHashDigits] != ' ') return std::nullopt;
  const std::string_view text = line.substr(kHashDigits + 1);
  if (line.substr(0, kHashDigits) != HashDigits(TextHash(text))) return std::nullopt;
  return text;
}

bool BeginsFramed(std::string_view content, std::string_view text) {
  const std::string_view digits = content.substr(0, kHashDigits);
  const std::string start = fmt::format(" {}", text);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         start.starts_with(content.substr(digits.size()).substr(0, start.size()));
}

}  // namespace spillway
